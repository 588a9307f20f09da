import json
import multiprocessing
import os
import shutil
import signal
import zlib

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse import nn
from glasshouse.base.errors import CheckpointError
from glasshouse.distributed.checkpoints import checkpoint
from glasshouse.distributed.groups.placement import Shard, own_part

STEPS = 6


def network(seed=0):
    gh.random.seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4), nn.Linear(4, 3))


def batch(step):
    rng = np.random.default_rng(step)
    x, y = rng.standard_normal((8, 4)), rng.standard_normal((8, 3))
    return gh.asarray(x.astype(np.float32)), gh.asarray(y.astype(np.float32))


def arrays(model):
    return {name: x.numpy() for name, x in model.state_dict().items()}


# -- parameters that ranks share out: updates that look at single elements need no collectives ----


def cut_in_rows(model):
    """The model, of whose parameters this rank keeps its rows, where there is one for each."""
    mesh = dist.mesh({"data": dist.size()})
    for p in model.parameters():
        if dist.size() > 1 and p.shape[0] >= dist.size():
            sharding = dist.sharding_of(p).with_cut(mesh, "data", Shard(0))
            with gh.no_grad():
                p.rebind(own_part(p, Shard(0), mesh["data"]))
            p.sharding = sharding
    return model


def updated(model, optimizer, steps):
    """Steps with gradients that depend on the parameter's place in the whole alone."""
    for step in steps:
        for number, (_, p) in enumerate(model.named_parameters()):
            shape = dist.sharding_of(p).shape
            rng = np.random.default_rng([step, number])
            grad = gh.asarray(rng.standard_normal(shape).astype(np.float32))
            p.grad = grad
            if p.sharding is not None:
                p.grad = own_part(grad, Shard(0), dist.world())
        optimizer.step()


def rows_saved(folder, begin, end):
    """Go on from the last checkpoint, if there is one, to the step `end`, and save it."""
    model = cut_in_rows(network())
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.1)
    if begin:
        metadata = dist.load_checkpoint(folder, model, optimizer)
        assert metadata["step"] == begin, metadata
    updated(model, optimizer, range(begin, end))
    dist.save_checkpoint(folder, model, optimizer, step=end, own=dist.rank()).wait()
    return [dist.gather(p).numpy() for p in model.parameters()]


@pytest.mark.slow
def test_other_numbers_of_ranks_go_on_with_rows(ranks, tmp_path):
    ranks(rows_saved, tmp_path, 0, 2, size=4)
    ranks(rows_saved, tmp_path, 2, 3, size=2)
    rows_saved(tmp_path, 3, 4)
    losses = ranks(rows_saved, tmp_path, 4, STEPS, size=2)
    model = network()
    updated(model, gh.optim.AdamW(model.parameters(), lr=0.1), range(STEPS))
    for own in losses:
        for got, p in zip(own, model.parameters(), strict=True):
            np.testing.assert_array_equal(got, p.numpy())


def told_on_ranks(folder):
    return dist.load_checkpoint(folder)["own"]


@pytest.mark.slow
def test_each_rank_gets_what_it_saved_or_what_the_first_did(ranks, tmp_path):
    ranks(rows_saved, tmp_path, 0, 1, size=2)
    assert ranks(told_on_ranks, tmp_path, size=2) == [0, 1]
    assert ranks(told_on_ranks, tmp_path, size=4) == [0, 1, 0, 0]


@pytest.mark.slow
def test_a_tensor_that_all_ranks_hold_is_written_once(ranks, tmp_path):
    ranks(rows_saved, tmp_path, 0, 1, size=2)
    files = sorted((tmp_path / "step-00000001").glob("*.safetensors"))
    names = [name for file in files for name in gh.interop.open_safetensors(file)]
    assert len(names) == len(set(names))
    assert "model.1.running_mean" in names
    assert "model.0.weight@[4, 0]" in names


# -- pipelines -----------------------------------------------------------------------------------


def trained(folder, begin, end, is_piped):
    """The losses of these steps, after the last checkpoint if there is one."""
    model = network()
    if is_piped:
        mesh, example = dist.mesh({"pipe": dist.size()}), batch(0)[0]
        model = dist.pipeline(model, mesh, example=example, split=["2"], microbatches=1)
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.05)
    schedule = gh.optim.ExponentialLR(optimizer, 0.9)
    if begin:
        dist.load_checkpoint(folder, model, optimizer, schedule=schedule)
    losses = []
    for step in range(begin, end):
        optimizer.zero_grad()
        if is_piped:
            loss = model.step(*batch(step), nn.functional.mse_loss)
        else:
            x, y = batch(step)
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    dist.save_checkpoint(folder, model, optimizer, step=end, schedule=schedule).wait()
    return losses


@pytest.mark.slow
def test_a_pipeline_and_one_process_go_on_with_each_other(ranks, tmp_path):
    expected = trained(tmp_path / "alone", 0, STEPS, False)
    losses = ranks(trained, tmp_path, 0, 2, True)[0]
    losses += trained(tmp_path, 2, 4, False)
    losses += ranks(trained, tmp_path, 4, STEPS, True)[1]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


# -- one process ---------------------------------------------------------------------------------


def test_state_is_that_of_the_call(tmp_path):
    model = network()
    before = arrays(model)
    saving = dist.save_checkpoint(tmp_path, model)
    with gh.no_grad():
        model[0].weight += 1
    saving.wait()
    dist.load_checkpoint(tmp_path, model)
    for name, value in arrays(model).items():
        np.testing.assert_array_equal(value, before[name])


def test_random_state_and_data_position_come_back(tmp_path):
    generator = gh.random.Generator(3)
    loader = gh.data.DataLoader(range(10), batch_size=2, shuffle=True)
    batches = iter(loader)
    next(batches)
    rest = [x.tolist() for x in batches][:1]
    loader = gh.data.DataLoader(range(10), batch_size=2, shuffle=True)
    next(iter(loader))
    dist.save_checkpoint(tmp_path, generator=generator, loader=loader).wait()
    key = generator.key().numpy()
    fresh, other = gh.data.DataLoader(range(10), 2, shuffle=True), gh.random.Generator(9)
    dist.load_checkpoint(tmp_path, generator=other, loader=fresh)
    np.testing.assert_array_equal(other.key().numpy(), key)
    assert next(iter(fresh)).tolist() == rest[0]


def test_only_the_newest_stay(tmp_path):
    for step in (1, 2, 3, 10):
        dist.save_checkpoint(tmp_path, network(), step=step, keep=2)
    dist.save_checkpoint(tmp_path, network(), keep=2).wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000010", "step-00000011"]


def test_a_step_is_replaced(tmp_path):
    for value in (1, 2):
        dist.save_checkpoint(tmp_path, network(), step=5, value=value).wait()
    assert dist.load_checkpoint(tmp_path) == {"step": 5, "value": 2}


def test_layers_of_every_dtype_come_back(tmp_path):
    model = nn.Module()
    values = {
        "of_int": gh.tensor(3),
        "of_16_bits": gh.ones(3, dtype="bfloat16"),
        "of_complex": gh.ones((2, 2), dtype="complex128"),
        "of_nothing": gh.zeros((0, 3)),
    }
    for name, x in values.items():
        model.register_buffer(name, x)
    dist.save_checkpoint(tmp_path, model).wait()
    for name, x in values.items():
        setattr(model, name, x * 0)
    dist.load_checkpoint(tmp_path, model)
    for name, x in values.items():
        np.testing.assert_array_equal(getattr(model, name).numpy(), x.numpy())


def killed_at(folder, place):
    """Save a step, and die in the middle of writing the next."""
    dist.save_checkpoint(folder, network(1), step=1).wait()
    if place == "file":

        def half(path, tensors, metadata):
            path.with_name(f".{path.name}.half").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.save_safetensors = half
    else:
        checkpoint.os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
    dist.save_checkpoint(folder, network(2), step=2).wait()


@pytest.mark.parametrize("place", ["file", "rename"])
def test_a_kill_in_the_middle_leaves_the_step_before(tmp_path, place):
    process = multiprocessing.get_context("spawn").Process(target=killed_at, args=(tmp_path, place))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    model = network(0)
    assert dist.load_checkpoint(tmp_path, model)["step"] == 1
    np.testing.assert_array_equal(model[0].weight.numpy(), network(1)[0].weight.numpy())
    dist.save_checkpoint(tmp_path, model).wait()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


# -- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """(folder, file, index) of a checkpoint."""
    model = network()
    optimizer = gh.optim.AdamW(model.parameters())
    path = dist.save_checkpoint(tmp_path, model, optimizer, step=1, lesson=[1]).wait()
    return tmp_path, path / "rank-00000.safetensors", path / "index.json"


def refused(folder, match, **options):
    """Loading says so, and changes nothing."""
    model = options.pop("model", None) or network(7)
    before = arrays(model)
    with pytest.raises(CheckpointError, match=match):
        dist.load_checkpoint(folder, model, **options)
    for name, value in arrays(model).items():
        np.testing.assert_array_equal(value, before[name])


def test_a_missing_file_is_refused(saved):
    folder, file, _ = saved
    file.unlink()
    refused(folder, "expected a readable file")


def test_a_file_cut_short_is_refused(saved):
    folder, file, _ = saved
    file.write_bytes(file.read_bytes()[:-40])
    refused(folder, "rank-00000")


def test_a_changed_byte_is_refused_by_name(saved):
    folder, file, _ = saved
    data = bytearray(file.read_bytes())
    at = data.find(network()[2].weight.numpy().tobytes())
    data[at] ^= 1
    file.write_bytes(bytes(data))
    refused(folder, r"model.2.weight whole in .*rank-00000.safetensors; got another checksum")


def test_a_file_of_another_checkpoint_is_refused(saved, tmp_path_factory):
    folder, file, _ = saved
    other = dist.save_checkpoint(tmp_path_factory.mktemp("other"), network(3), step=1).wait()
    shutil.copy(other / file.name, file)
    refused(folder, "to be of this checkpoint; got one of another")


def test_a_damaged_index_is_refused(saved):
    folder, _, index = saved
    index.write_text(index.read_text().replace("model.0", "model.4"))
    refused(folder, "whole index")


def test_another_version_is_refused(saved):
    folder, _, index = saved
    text = json.loads(index.read_text())["index"].replace('"version": 1', '"version": 2')
    index.write_text(json.dumps({"crc32": zlib.crc32(text.encode()), "index": text}))
    refused(folder, "expected version 1; got 2")


def test_an_empty_folder_is_refused(tmp_path):
    refused(tmp_path, "a whole checkpoint in .*; got steps \\[\\]")


def test_a_step_that_is_not_there_is_refused(saved):
    refused(saved[0], "step 4 in .*; got steps \\[1\\]", step=4)


def test_another_model_is_refused(saved):
    refused(
        saved[0],
        "model.0.weight of shape",
        model=nn.Sequential(nn.Linear(9, 8), *list(network())[1:]),
    )
    fewer = nn.Sequential(*list(network())[:3])
    refused(saved[0], "got no model.3", model=fewer)


def test_what_was_not_saved_is_refused(saved):
    refused(saved[0], "'lessons' in", lessons=gh.random.Generator(1))


def test_an_optimizer_of_other_parameters_is_refused(tmp_path):
    optimizer = gh.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(CheckpointError, match="optimizer of the model's parameters"):
        dist.save_checkpoint(tmp_path, network(), optimizer)


def other_steps(folder):
    try:
        dist.save_checkpoint(folder, network(), step=dist.rank())
    except CheckpointError as error:
        return str(error)
    return "saved"


@pytest.mark.slow
def test_ranks_with_other_steps_are_refused(ranks, tmp_path):
    for message in ranks(other_steps, tmp_path):
        assert "expected one step on all ranks; got [0, 1]" in message


# -- ZeRO ----------------------------------------------------------------------------------------


def with_zero(folder, begin, end, stage):
    """The losses of these steps on all rows, after the last checkpoint if there is one."""
    gh.random.seed(0)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3))
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.05)
    optimizer = dist.zero(model, optimizer, dist.mesh({"data": dist.size()}), stage=stage)
    if begin:
        dist.load_checkpoint(folder, model, optimizer)
    losses = []
    for step in range(begin, end):
        x, y = (part[dist.rank() :: dist.size()] for part in batch(step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(dist.all_reduce(loss.detach(), "mean").item())
    dist.save_checkpoint(folder, model, optimizer, step=end).wait()
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_zero_shares_out_goes_on_in_one_process_and_back(ranks, tmp_path, stage):
    expected = with_zero(tmp_path / "alone", 0, STEPS, stage)
    losses = ranks(with_zero, tmp_path, 0, 2, stage)[0]
    losses += with_zero(tmp_path, 2, 4, stage)
    losses += ranks(with_zero, tmp_path, 4, STEPS, stage)[1]
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
