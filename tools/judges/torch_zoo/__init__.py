"""Models that others wrote, for `torch_models.py` and its kin: where they come from and how a
result is judged.

    models.py    the models of each library, small forms of them, and their inputs
    others.py    models of further libraries, built by hand
    exact.py     whether results and steps are eager's, or as near to float64 as eager's are
    captured.py  a captured step beside an eager one"""
