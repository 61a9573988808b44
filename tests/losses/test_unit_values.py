"""Every reference value is tested, or listed with the reason that it is not.

unit_values.json was computed by a numpy implementation that is independent of this package.
"""

import json
import re
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
VALUES: dict[str, Any] = json.loads((TESTS / "unit_values.json").read_text())

# Patterns of dotted keys, and the test file that compares with these values.
TESTED = {
    r"A\..*": "losses/cases.py",  # inputs
    r"B\.(angles|labels)": "losses/test_contrastive.py",  # inputs
    r"A_tau.*\.(supcon_t\d_(mean|sum)|per_anchor_t\d|ntxent.*)": "losses/test_public.py",
    r"A_tau.*\.mtcon_s_(mean|sum)": "losses/test_public.py",
    r"A_weighted_s=.*\.(mtcon|dL_ds)": "losses/test_weighting.py",
    r"A_weighted_sumred.*": "losses/test_weighting.py",
    r"A_tempform.*\.sup_tau_scaled": "methods/test_mtcon.py",
    r"B\.(per_anchor|mean_valid|sum)": "losses/test_contrastive.py",
    r"C_tau.*\.(mean|sum|nsize)": "losses/test_soft_positives.py",
    r"C_jaccard": "losses/test_soft_positives.py",
    r"D_.*": "losses/test_self_supervised.py",
    r"E_csn.*": "methods/test_csn.py",
    r"E_sce.*": "methods/test_scenet.py",
    r"F_(?!amcl_nt.*code).*": "losses/test_amcl.py",
    r"G\.(ce1|ce2|unweighted|kendall_s0|kendall_s|opt_.*)": "methods/test_xent.py",
}
# Patterns of values that belong to variants which the package does not have, and the reason.
COMPARISON_ONLY = {
    r"A_tau.*\.supcontrast_code_t1|C_tau.*\.code_scaled": "a factor tau/0.07 of the authors' code",
    r"F_amcl_nt.*code": "the regulariser of AMCL's released code",
    r"B\.mean_all": "a mean over anchors without positives too",
    r"C_tau.*\.ones_mean": "a weight of 1 for each positive",
    r"C_counts_jaccard": "sets of counts",
    r"A_weighted_s=.*\.(kendall_cls|half_both)": "Kendall's penalty on contrastive losses",
    r"A_tempform.*\.(loss_scaled|with_penalty)": "what the temperature form is not",
    r"A_supcon_in.*": "the loss with the logarithm outside of the mean",
    r"B_batch1_two_views": "zero, which test_one_item_with_two_views_gives_zero tests",
    r"G\.log2_form": "MTCon's penalty on cross-entropy",
}


def leaves(values: dict[str, Any], prefix: str = "") -> list[str]:
    """Returns the dotted keys of all values that are not mappings."""
    found = []
    for key, value in values.items():
        path = f"{prefix}{key}"
        found += leaves(value, f"{path}.") if isinstance(value, dict) else [path]
    return found


def test_every_value_is_tested_or_says_why_not() -> None:
    patterns = [*TESTED, *COMPARISON_ONLY]
    unmatched = set(patterns)
    for leaf in leaves(VALUES):
        fitting = [pattern for pattern in patterns if re.fullmatch(pattern, leaf)]
        assert fitting, f"{leaf} is neither tested nor listed"
        unmatched -= set(fitting)
    assert not unmatched, "patterns without a value"


def test_the_files_named_read_the_values() -> None:
    for pattern, file in TESTED.items():
        text = (TESTS / file).read_text(encoding="utf-8")
        case = pattern.removeprefix("(")[0]
        assert "VALUES" in text, file
        assert re.search(rf"[\"']{case}(_|[\"'])", text), (pattern, file)
