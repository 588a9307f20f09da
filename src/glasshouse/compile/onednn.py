from glasshouse.base.shape import Spec


def plan_opaque(lowering, node, sources):
    from glasshouse.compile.lower import Opaque
    specs = node.spec if isinstance(node.spec, tuple) else (node.spec,)
    results = [lowering.buffer(s, node=node) for s in specs]
    lowering.steps.append(Opaque("host", node, sources, results))
    if isinstance(node.spec, tuple):
        lowering.results[node.number] = results
    else:
        lowering.expr[node.number] = lowering.exprs.load(results[0].view())
