"""Lines of every day from programs of PyTorch's users: the same line gives the same here.

A line runs with `torch` and `glasshouse` under the same names and leaves its result in `out`."""

import re

import numpy as np
import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")
LINES = """
x=torch.from_numpy(np.arange(12,dtype=np.float32).reshape(3,4)); y=x.clone(); y[y>5]=0; out=y

p=torch.nn.Parameter(torch.ones(3)); p.data.uniform_(0,0); out=p

p=torch.nn.Parameter(torch.ones(3)); p.data*=2; out=p

p=torch.nn.Parameter(torch.ones(3)); p.data=torch.zeros(3); out=p

l=nn.Linear(3,2); l.weight.data.fill_(0.5); l.bias.data.zero_(); out=l(torch.ones(1,3))

l=nn.Linear(3,2)
nn.init.constant_(l.weight,0.5)
nn.init.zeros_(l.bias)
out=l(torch.ones(1,3)).sum().item()

out=torch.tensor([[1,2],[3,4]]).float().mean(dim=1,keepdim=True)

v,i=torch.tensor([[1.,5.,2.],[7.,1.,0.]]).max(1); out=v+i

_,pred=torch.max(torch.tensor([[1.,5.,2.],[7.,1.,0.]]),1)
out=(pred==torch.tensor([1,0])).sum().item()

out=torch.tensor([[1.,5.,2.],[7.,1.,0.]]).argmax(dim=1,keepdim=True)

pred=torch.tensor([[1],[0]]); out=pred.eq(torch.tensor([1,1]).view_as(pred)).sum().item()

out=torch.stack([torch.ones(2),torch.zeros(2)],dim=1)

out=F.one_hot(torch.tensor([0,2]),num_classes=3)

out=torch.zeros(2,3).scatter_(1,torch.tensor([[0],[2]]),1.0)

out=torch.ones(2,3).masked_fill_(torch.tensor([True,False,True]),-1)

x=torch.ones(2,3); x.unsqueeze_(0); out=x.shape[0]

out=torch.cat([torch.ones(1,2)]*3,0).size(0)

out=torch.nn.utils.parameters_to_vector(nn.Linear(2,2).parameters()).numel()

m=nn.Sequential(nn.Linear(2,2),nn.ReLU())
out=sum(p.numel() for p in m.parameters() if p.requires_grad)

m=nn.ModuleList([nn.Linear(2,2) for _ in range(3)]); out=len(m)

m=nn.ModuleDict({"a":nn.Linear(2,2)}); out=len(list(m["a"].named_parameters()))

m=nn.Linear(2,2); s=m.state_dict(); m.load_state_dict(s,strict=False); out=len(s)

from collections import OrderedDict
m=nn.Sequential(OrderedDict([("fc",nn.Linear(2,1))]))
out=[n for n,_ in m.named_children()]==["fc"]

m=nn.Linear(2,2)
o=optim.SGD([{"params":[m.weight],"lr":1e-2},{"params":[m.bias]}],lr=0.1,momentum=0.9)
out=[g["lr"] for g in o.param_groups]

o=optim.Adam(nn.Linear(2,2).parameters(),lr=1e-3,weight_decay=1e-5,amsgrad=True,foreach=False)
o.zero_grad(set_to_none=False)
out=1

o=optim.AdamW(nn.Linear(2,2).parameters(),lr=1e-3,fused=False,capturable=False)
s=optim.lr_scheduler.OneCycleLR(o,max_lr=.1,total_steps=10)
s.step()
out=s.get_last_lr()[0]

o=optim.RMSprop(nn.Linear(2,2).parameters(),lr=1e-3,alpha=.9)
s=optim.lr_scheduler.LambdaLR(o,lr_lambda=lambda e:.5**e)
s.step()
out=o.param_groups[0]["lr"]

o=optim.SGD(nn.Linear(2,2).parameters(),lr=1.)
s=optim.lr_scheduler.ReduceLROnPlateau(o,mode="min",factor=.1,patience=0)
s.step(1.)
s.step(2.)
out=o.param_groups[0]["lr"]

out=F.cross_entropy(torch.zeros(2,3),torch.tensor([0,1]),label_smoothing=.1,reduction="none")

out=nn.CrossEntropyLoss(weight=torch.tensor([1.,2.,3.]))(torch.zeros(2,3),torch.tensor([0,1]))

out=nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.]))(torch.zeros(2,1),torch.ones(2,1))

out=F.nll_loss(F.log_softmax(torch.zeros(2,3),dim=-1),torch.tensor([0,1]))

out=F.smooth_l1_loss(torch.zeros(2),torch.ones(2),beta=.5)

out=F.pad(torch.ones(1,1,2,2),(1,1,1,1),"constant",0)

out=F.interpolate(torch.ones(1,1,2,2),scale_factor=2,mode="nearest")

out=F.max_pool2d(torch.arange(16.).view(1,1,4,4),2,2)

out=F.avg_pool2d(torch.arange(16.).view(1,1,4,4),kernel_size=2,stride=2)

out=F.dropout(torch.ones(3),p=.5,training=False)

out=F.gumbel_softmax(torch.zeros(2,3),tau=1.,hard=True).sum()

q=torch.ones(1,2,3,4); out=F.scaled_dot_product_attention(q,q,q,is_causal=True)

out=torch.einsum("bij,bjk->bik",torch.ones(2,3,4),torch.ones(2,4,5))

out=torch.bmm(torch.ones(2,3,4),torch.ones(2,4,5))

out=torch.addmm(torch.ones(2,2),torch.ones(2,3),torch.ones(3,2))

out=torch.ones(2,3)@torch.ones(3)

out=torch.randn(4).normal_().shape[0]

out=torch.empty(3).uniform_(0,1).size(0)

g=torch.Generator(); g.manual_seed(0); out=torch.randperm(5,generator=g).sum()

out=torch.multinomial(torch.ones(5),5).sum()

x=torch.ones(3,requires_grad=True); (x**2).sum().backward(); x.grad.zero_(); out=x.grad

x=torch.ones(3,requires_grad=True)
g,=torch.autograd.grad((x**2).sum(),x,create_graph=True)
out=g.detach()

x=torch.ones(3,requires_grad=True); y=x.detach().clone().requires_grad_(True); out=y.is_leaf

with torch.set_grad_enabled(False): x=torch.ones(2,requires_grad=True)*2; out=x.requires_grad

x=torch.ones(3,requires_grad=True)
h=x.register_hook(lambda g:g*2)
x.sum().backward()
out=x.grad

e=nn.Embedding(5,3,padding_idx=0); out=e(torch.tensor([0,0])).detach()

l=nn.LSTM(3,4,2,batch_first=True,bidirectional=True)
o,(h,c)=l(torch.ones(2,5,3))
out=list(o.shape)+list(h.shape)

from torch.nn.utils.rnn import pack_padded_sequence,pad_packed_sequence
l=nn.GRU(3,4)
p=pack_padded_sequence(torch.ones(5,2,3),torch.tensor([5,3]))
o,h=l(p)
o,n=pad_packed_sequence(o)
out=n

a=nn.MultiheadAttention(4,2,batch_first=True)
o,w=a(torch.ones(1,3,4),torch.ones(1,3,4),torch.ones(1,3,4),need_weights=True)
out=list(w.shape)

m=nn.BatchNorm2d(3); m.eval(); out=m(torch.ones(1,3,2,2)).detach()

m=nn.Sequential(nn.Linear(2,2)); m.train(False); out=m.training

from torch.utils.data import DataLoader,TensorDataset,random_split
d=TensorDataset(torch.arange(10.),torch.arange(10))
a,b=random_split(d,[8,2])
out=len(DataLoader(a,batch_size=4,shuffle=True,drop_last=True,pin_memory=False,num_workers=0))

from torch.utils.data import DataLoader
x,y=next(iter(DataLoader([(np.ones(2,dtype=np.float32),1)]*4,batch_size=2)))
out=x

from torch.utils.data import Dataset,DataLoader,WeightedRandomSampler
out=len(list(WeightedRandomSampler([.1,.9],4)))

out=torch.linspace(0,1,steps=5); out=out[1:-1:2]

out=torch.where(torch.tensor([1.,-1.])>0,torch.tensor(1.),torch.tensor(0.))

out=torch.clamp(torch.tensor([1.,-1.]),min=0)

out=torch.tensor([1.,2.]).pow(2).sum().sqrt().item()

out=torch.allclose(torch.ones(2),torch.ones(2)+1e-9)

out=torch.tensor(3).item()+torch.tensor(2.5).item()

x=torch.zeros(2,3); x[:,1]=torch.tensor([1.,2.]); out=x

x=torch.arange(6).reshape(2,3); out=x[torch.arange(2),torch.tensor([0,2])]

out=torch.ones(2,3).to(torch.float64).type(torch.float32).dtype==torch.float32

out=torch.ones(2,3).expand(4,2,3).contiguous().view(-1).size(0)

out=torch.ones(1,3).repeat(2,2).shape[1]

out=torch.ones(2,3,4).permute(2,0,1).flatten(1).shape[1]

a,b=torch.ones(4,2).chunk(2,dim=0); out=a

out=torch.tensor([3,1,2]).sort(descending=True)[0]

out=torch.topk(torch.tensor([3.,1.,2.]),2)[1]

out=torch.tensor([1,1,2]).unique(return_counts=True)[1]

out=torch.cumsum(torch.ones(3),dim=0)

out=torch.norm(torch.ones(2,2)); out2=torch.ones(2,2).norm(p=1,dim=1)

out=torch.nn.utils.clip_grad_norm_([torch.ones(2,requires_grad=True)],1.)

out=torch.ones(3).numpy().sum(); out=len(torch.ones(3))

out=torch.is_tensor(torch.ones(1)) and isinstance(torch.ones(1),torch.Tensor)

out=torch.get_default_dtype()==torch.float32

out=torch.full((2,),3.).long()

out=torch.ones(2).shape==torch.Size([2])

torch.cuda.manual_seed_all(0); out=torch.cuda.device_count()

out=torch.randn(2,device="cpu").device.type=="cpu"

out=torch.zeros(2,device=torch.device("cpu"),dtype=torch.long)

x=torch.ones(2); x.requires_grad=True; out=x.requires_grad

import copy; m=copy.deepcopy(nn.Linear(2,2)); out=1

from torch.optim.swa_utils import AveragedModel
m=AveragedModel(nn.Linear(2,2))
m.update_parameters(nn.Linear(2,2))
out=1

out=torch.vmap(lambda x:x*2)(torch.ones(3))

x=torch.zeros(2,2); x.fill_diagonal_(1); out=x

x=torch.zeros(3); x[0].add_(1); out=x

x=torch.zeros(3,2); x[1]+=1; x[:,0].mul_(2); out=x

x=torch.zeros(2,2); x[0].copy_(torch.ones(2)); out=x

x=torch.zeros(2,3); x[0].fill_(1); out=x

x=torch.zeros(2,2); x.data[0]=1; out=x

w=torch.nn.Parameter(torch.zeros(2,2)); w.data[0].fill_(1); out=w

w=torch.nn.Parameter(torch.zeros(2,2)); w.data[:,0].uniform_(2,2); out=w
""".strip().split("\n\n")


def out_of(line: str, library):
    names = {"np": np, "torch": library, "nn": library.nn, "F": library.nn.functional}
    if library is gh:
        line = line.replace("from torch.utils.data", "from glasshouse.data")
        line = re.sub(r"\bfrom torch\b", "from glasshouse", line)
    names["optim"] = library.optim
    exec(line, names)
    out = names["out"]
    return out.detach().numpy() if hasattr(out, "detach") else out


@pytest.mark.parametrize("line", LINES)
@pytest.mark.filterwarnings("ignore")
def test_a_line_of_every_day_gives_the_same(line):
    result, expected = (np.asarray(out_of(line, library), float) for library in (gh, torch))
    np.testing.assert_allclose(result, expected, rtol=1e-4)
