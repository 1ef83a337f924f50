"""Square: what it tries is what the paper describes, on images of any shape; known queries are not asked."""

import math

import pytest
import torch
from attack_zoo import SmallNet, digits, distances, examples, linear, problem

from pclc.attacks import Square
from pclc.attacks.square_moves import _corner, bump, moves, share

NORMS = pytest.mark.parametrize("norm", ["Linf", "L2"])


def asked(norm, x, queries, eps, p_init=0.8):
    """The images that a model is asked about, (queries + 1, N, ...), and its margins, which the attack makes large."""
    seen, margins = [], []

    def model(images):
        score = images.flatten(1).sum(1)
        seen.append(images.clone())
        margins.append(-1000 - score)
        return torch.stack([score, torch.full_like(score, -1000)], 1)  # never fooled

    attack = Square(eps, queries=queries, norm=norm, p_init=p_init, stop="never")
    attack(model, x, torch.zeros(len(x), dtype=torch.long))
    return torch.stack(seen[1:]), torch.stack(margins[1:])  # the first look is at the clean images


def test_linf_sets_squares_to_the_ends_of_the_interval():
    x, eps, queries = torch.rand(5, 3, 10, 10, dtype=torch.float64), 0.1, 130
    seen, margin = asked("Linf", x, queries, eps, p_init=0.3)
    assert len(seen) == queries + 1
    up, down = seen == (x + eps).clamp(max=1), seen == (x - eps).clamp(min=0)
    assert (up | down).all()
    assert (up[0] == up[0][:, :, :1]).all(), "the start has vertical stripes"
    best = seen[0].clone()
    largest = margin[0].clone()
    for query in range(queries):
        side = max(round(math.sqrt(share(query, queries, 0.3) * 100)), 1)
        changed = (seen[query + 1] != best).any(1)  # (N, H, W)
        for rows in (changed.any(2), changed.any(1)):
            place = torch.arange(10).expand_as(rows)
            first = torch.where(rows, place, 10).amin(1)
            last = torch.where(rows, place, -1).amax(1)
            assert (last - first < side).all()
        better = margin[query + 1] > largest
        best[better], largest[better] = seen[query + 1][better], margin[query + 1][better]
    assert (largest > margin[0]).all()


def naive_l2_move(x, x_best, eps, windows, side, pattern, signs):
    """The published update of one image, with slices."""
    (r1, c1), (r2, c2) = windows
    delta, C = x_best - x, len(x)
    first = slice(None), slice(r1, r1 + side), slice(c1, c1 + side)
    second = slice(None), slice(r2, r2 + side), slice(c2, c2 + side)
    mask = torch.zeros_like(x)
    mask[first] = mask[second] = 1
    held = (delta * mask).square().sum((1, 2), keepdim=True)
    unused = max(eps**2 - delta.square().sum().item(), 0) / C
    old = delta[first] / (1e-12 + delta[first].square().sum((1, 2), keepdim=True).sqrt())
    new = old + pattern * signs[:, None, None]
    new = new / new.square().sum((1, 2), keepdim=True).sqrt() * (unused + held).sqrt()
    delta[second] = 0
    delta[first] = new
    return (x + eps * delta / delta.norm()).clamp(0, 1)


def test_l2_moves_as_published():
    N, C, H, Q, eps = 6, 3, 12, 4, 0.8
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, C, H, H, generator=generator, dtype=torch.float64)
    by = moves("L2", eps, (C, H, H))
    x_best = by.start(x, 0, torch.arange(N), 0)
    u = torch.rand(Q, N, by.numbers, generator=generator, dtype=torch.float64)
    sides = [by.side(p) for p in (0.8, 0.3, 0.1, 0.01)]
    assert sides == [11, 7, 5, 3]
    draws = by.draw(u, torch.tensor(sides)[:, None])
    for query, side in enumerate(sides):
        after = by.propose(x, x_best, side, tuple(part[query] for part in draws))
        corners = (u[query, :, :4] * (H - side)).round().long()
        for row in range(N):
            r1, c1, r2, c2 = corners[row].tolist()
            pattern = bump(side, side).double()
            pattern = pattern.T if u[query, row, 4] < 0.5 else pattern
            signs = torch.where(u[query, row, 5:] < 0.5, -1.0, 1.0).double()
            expected = naive_l2_move(x[row], x_best[row], eps, ((r1, c1), (r2, c2)), side, pattern, signs)
            torch.testing.assert_close(after[row], expected, rtol=1e-6, atol=1e-7)


def test_l2_spends_the_whole_ball():
    x = torch.full((4, 2, 10, 10), 0.5, dtype=torch.float64)
    seen, _ = asked("L2", x, 40, eps=0.7)
    torch.testing.assert_close((seen - x).flatten(2).norm(dim=2), torch.full((41, 4), 0.7, dtype=torch.float64))
    start = (seen[0] - x).abs().sum(1)
    assert (start > 0).all(), "tiles of two pixels cover ten"
    assert not torch.equal(seen[0][0], seen[0][1])


def test_l2_starts_with_a_grid_of_bumps():
    """Five by five, in the middle of the image, upright or turned, of one size; the sign at random for each channel."""
    x = torch.full((2, 3, 17, 17), 0.5, dtype=torch.float64)
    delta = moves("L2", 0.7, (3, 17, 17)).start(x, 0, torch.arange(2), 0) - x
    assert not delta[..., [0, 16], :].any()
    assert not delta[..., [0, 16]].any()
    tiles = delta[..., 1:16, 1:16].unfold(2, 3, 3).unfold(3, 3, 3).movedim(1, 3).flatten(0, 2)  # (50, C, 3, 3)
    upright = bump(3, 3).double() * 0.7 / math.sqrt(25 * 3)
    found = torch.stack(
        [(tiles - sign * pattern).abs().amax((2, 3)) < 1e-6 for pattern in (upright, upright.T) for sign in (1, -1)]
    )
    assert (found.sum(0) == 1).all()
    assert (found.sum((1, 2)) > 15).all(), "all four come up"
    stands = found[0] | found[1]
    assert (stands == stands[:, :1]).all(), "channels differ in sign only"


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 4), (3, 3), (5, 5), (6, 6), (7, 4)])
def test_bumps(height, width):
    """The published sum over growing boxes."""

    def hill(a, b):
        values = torch.zeros(a, b, dtype=torch.float64)
        for k in range(max(a // 2, b // 2) + 1):
            values[max(a // 2 - k, 0) : a // 2 + k + 1, max(b // 2 - k, 0) : b // 2 + k + 1] += 1 / (k + 1) ** 2
        return values / values.norm()

    upper = [hill(height // 2, width)] if height > 1 else []
    expected = torch.cat([*upper, -hill(height - height // 2, width)])
    torch.testing.assert_close(bump(height, width), (expected / expected.norm()).float())


def test_share_is_halved_nine_times():
    shares = [share(query, 10_000, 0.8) for query in range(10_000)]
    changes = [query for query in range(1, 10_000) if shares[query] != shares[query - 1]]
    assert changes == [11, 51, 201, 501, 1001, 2001, 4001, 6001, 8001]
    assert shares[-1] == 0.8 / 512
    assert share(500, 1000, 0.8) == share(5000, 10_000, 0.8)


def test_squares_lie_everywhere_and_at_a_border_half_as_often():
    """A place inside comes once in 7, as in the authors' code; once in 8 was weaker on images with an empty border."""
    u = torch.arange(0, 2**24, 2**8).double() / 2**24
    counts = _corner(u, torch.tensor([3]), 10).bincount()
    assert len(counts) == 8, "the last row is within reach"
    expected = len(u) / 7 * torch.tensor([0.5, 1, 1, 1, 1, 1, 1, 0.5])
    assert (counts - expected).abs().max() <= 1
    assert not _corner(u, torch.tensor([10]), 10).any()
    assert not _corner(u, torch.tensor([11]), 10).any()


@NORMS
@pytest.mark.parametrize("shape", [(9,), (5, 7), (2, 3, 8), (1, 1, 1), (2, 2, 4, 4)])
def test_shapes(norm, shape):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(6, *shape, generator=generator)
    weight = torch.randn(3, x[0].numel(), generator=generator)
    model = linear(weight, -weight.sum(1) / 2)
    y = model(x).argmax(1)
    result = Square(0.3, queries=40, norm=norm).run(model, x, y)
    moved = (result.x_adv - x).flatten(1)
    assert result.x_adv.shape == x.shape
    assert (moved.abs().amax(1) if norm == "Linf" else moved.norm(dim=1)).max() <= 0.3 + 1e-6
    assert moved.any(1).sum() > 3


def test_it_reaches_the_worst_corner_of_a_linear_model():
    model, x, y, weight = problem((1, 4, 4), 2, 40)
    distance = distances(model, x, y, weight, "Linf")
    eps = distance.median().item()
    success = Square(eps, queries=2000).run(model, x, y).success
    clear = (distance / eps - 1).abs() > 0.01
    assert clear.sum() > 30
    assert torch.equal(success[clear], (distance < eps)[clear])


def test_the_model_is_not_asked_twice_about_the_same_image(monkeypatch):
    model = SmallNet().double().eval()
    x, y = examples(model, 20)
    attack = Square(0.03, queries=150)
    quick = attack.run(model, x, y, seed=3)
    monkeypatch.setattr(
        "pclc.attacks.square.moves", lambda *settings: moves(*settings)._replace(repeats=False), raising=True
    )
    slow = attack.run(model, x, y, seed=3)
    torch.testing.assert_close(quick.x_adv, slow.x_adv)
    assert torch.equal(quick.success, slow.success)
    assert quick.forwards < 0.9 * slow.forwards


@NORMS
def test_it_needs_no_gradient(norm):
    model = SmallNet().double().eval()
    x, y = examples(model)
    attack = Square(0.1, queries=20, norm=norm)
    result = attack.run(lambda x: model(x).detach(), x, y)
    assert torch.equal(result.x_adv, attack(model, x, y))
    assert result.backwards == 0
    assert result.zero_gradient_share is None


def test_cost():
    x = torch.rand(4, 3, 6, 6)
    model = linear(torch.zeros(2, 108), torch.tensor([0.0, -1.0]))
    result = Square(0.1, queries=70, restarts=2).run(model, x, torch.zeros(4, dtype=torch.long))
    assert result.forwards == 4 * (2 * 71 + 2 + 2)


def test_restarts_fool_more():
    model, x, y = digits()
    x, y = x[:60], y[:60]
    counts = [int(Square(0.1, queries=8, restarts=restarts).run(model, x, y).success.sum()) for restarts in (1, 6)]
    assert counts[0] < counts[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": -1}, "`eps` to be a finite number of at least 0"),
        ({"queries": 0}, "`queries` to be a whole number"),
        ({"norm": "L1"}, '`norm` to be "Linf" or "L2"'),
        ({"p_init": 0}, "`p_init` to be a finite number above 0"),
        ({"p_init": 1.5}, "`p_init` to be a number in"),
        ({"restarts": 0}, "`restarts` to be a whole number"),
        ({"objective": "xe"}, "`objective` to be one of"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(ValueError, match=message):
        Square(**({"eps": 0.1} | settings))


@pytest.mark.peers
@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.7)])
def test_parity_with_the_authors(norm, eps):
    theirs = pytest.importorskip("pyautoattack.square", reason="needs the peers: make peers")
    model, x, y = digits()
    ours, others = [], []
    for seed in range(3):
        attack = theirs.SquareAttack(model, norm=norm, n_queries=500, eps=eps, seed=seed, device="cpu")
        with torch.no_grad():
            others.append((model(attack.perturb(x, y)).argmax(1) == y).double().mean().item())
        ours.append(1 - Square(eps, queries=500, norm=norm).run(model, x, y, seed=seed).success.double().mean().item())
    print(f"square {norm}: accuracy {ours}, pyautoattack {others}")
    mean = sum(others) / 3
    assert sum(ours) / 3 <= mean + 2 * math.sqrt(mean * (1 - mean) / (3 * len(x)))


@pytest.mark.peers
def test_the_authors_code_asks_the_same_with_the_same_random_numbers(monkeypatch):
    """In L2: the start, the sides, the bumps, what the windows may use and what is kept, for 130 queries."""
    theirs = pytest.importorskip("pyautoattack.square", reason="needs the peers: make peers")
    N, C, H, queries, eps, tiles = 3, 2, 17, 130, 0.5, 5
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, C, H, H, generator=generator, dtype=torch.float64)
    weights = torch.randn(C * H * H, 2, generator=generator, dtype=torch.float64)
    places, turned, signs = [], [], []  # all that it draws, as our numbers from 0 to 1

    class Recorded(theirs.SquareAttack):
        def random_int(self, low, high):
            place = super().random_int(low, high)
            places.append(place / high)
            return place

        def random_choice(self, shape):
            sign = super().random_choice(shape)
            signs.append((1 + sign.flatten(1)) / 2)
            return sign

        def eta(self, side):
            state = torch.get_rng_state()
            turned.append((torch.rand([1]) <= 0.5).float())
            torch.set_rng_state(state)
            return super().eta(side)

    def never_fooled(seen):
        def model(images):
            seen.append(images.clone())
            return (3 * images.flatten(1)).sin() @ weights + torch.tensor([1000.0, 0.0])

        return model

    asked, seen = [], []
    y = torch.zeros(N, dtype=torch.long)
    with torch.random.fork_rng():
        attack = Recorded(never_fooled(asked), norm="L2", n_queries=queries, eps=eps, device="cpu")
        attack.init_hyperparam(x)
        attack.attack_single_run(x, y)
    bumps = torch.cat([torch.cat(turned).expand(N, 1, -1), torch.stack(signs, 2)], 1).movedim(1, 2)  # (N, ..., 1 + C)
    start = bumps[:, : tiles**2].reshape(N, tiles, tiles, 1 + C)
    moved = torch.cat([torch.cat(places).reshape(1, queries, 4).expand(N, -1, -1), bumps[:, tiles**2 :]], 2)
    moved = torch.nn.functional.pad(moved, (0, 0, 0, 64))  # numbers are drawn for 64 queries at a time

    def replay(shape, seed, index, step=0, **unused):
        return (moved[:, step - 1 : step + 63] if step else start).double()

    monkeypatch.setattr("pclc.attacks.random.uniform", replay)
    Square(eps, queries=queries, norm="L2", stop="never")(never_fooled(seen), x, y)
    torch.testing.assert_close(torch.stack(seen[1:]), torch.stack(asked), rtol=1e-5, atol=1e-6)
    assert len(asked) == queries + 1


def test_without_rescaling_the_schedule_is_that_of_ten_thousand_queries():
    """As AutoAttack uses it: what 40 queries of a run of 10,000 try, a run of 40 queries tries."""
    model, x, y = SmallNet().eval(), *examples(SmallNet().eval(), dtype=torch.float32)
    few, same = (Square(0.05, queries=40, rescale=rescale, stop="never")(model, x, y) for rescale in (True, False))
    assert not torch.equal(few, same)
    assert share(39, 10_000, 0.8) == 0.4
    assert share(39, 40, 0.8) == 0.8 / 512
