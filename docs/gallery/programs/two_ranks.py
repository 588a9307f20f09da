"""Two ranks train one network on halves of each batch, and average their gradients."""

import sys

import glasshouse as gh
from glasshouse import distributed, nn
from glasshouse.nn.functional import cross_entropy

distributed.init()
rank, folder = distributed.rank(), sys.argv[1]
gh.random.seed(0)
layers = [nn.Linear(512, 512) if i % 2 == 0 else nn.GELU() for i in range(8)]
model = nn.Sequential(*layers, nn.Linear(512, 10))
model = distributed.replicate(model, distributed.mesh({"data": 2}))
optimizer = gh.optim.AdamW(model.parameters(), lr=1e-3)
gh.random.seed(rank)
x, y = gh.random.normal((256, 512)), gh.arange(256) % 10


def step():
    loss = cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


step()
distributed.barrier()
with gh.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
    for _ in range(4):
        step()
        prof.step()
prof.export_chrome_trace(f"{folder}/rank{rank}.json.gz")
if rank == 0:
    prof.report(f"{folder}/two_ranks.html")
distributed.shutdown()
