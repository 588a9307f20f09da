"""The PyTorch support that lower storeys load by purpose (`base/upper_storeys.py`)."""

OFFERS = {
    # of profile: `observe(watcher, model)` returns a function that ends it
    "observe": "glasshouse.torch.observe.observer:observe",
    "costs of a trace": "glasshouse.torch.observe.trace_cost",
    # of analyze: steps by convention, graphs, and what they are made from
    "exact": "glasshouse.torch.ahead.compiled:CompiledStep",
    "torch": "glasshouse.torch.ahead.eager:EagerStep",
    "captured": "glasshouse.torch.ahead.captured:WholeStep",
    "with_batch": "glasshouse.torch.ahead.no_contents:with_batch",
    "traced": "glasshouse.torch.ahead.node_trace:traced",
    "graph": "glasshouse.torch.ahead.node_costs:TorchGraph",
    "plan": "glasshouse.torch.ahead.budget_plan:plan",
    # of estimate
    "build": "glasshouse.torch.ahead.hugging_face:build",
    "subject": "glasshouse.torch.ahead.fit_subject:TorchSubject",
    # of capture
    "front": "glasshouse.torch.front.torch_front:TorchFront",
}
