"""Tables of the census of graphs, from figures that are made up."""

from __future__ import annotations

import sys

from paths import ROOT

sys.path.insert(0, str(ROOT))

from benchmarks import graph_tables

FLAT = ("degree product", "common neighbours")


def entry(auc, matched, whole=None):
    """Figures of three splits at dimension 2, a little apart, by method."""
    methods = {}
    for name in auc:
        splits = {
            str(k): {"auc": auc[name] + 0.001 * k * (1 + len(name) % 3), "ap": 0.5, "auc_matched": matched[name]}
            for k in range(3)
        }
        methods[name] = {"2": {"splits": splits, **({"whole": whole} if whole and name == "ball" else {})}}
    return {"nodes": 1000, "edges": 2000, "methods": methods}


RESULT = {
    "graphs": {
        "davis": entry(
            {"ball": 0.65, "plane": 0.85, "singular vectors": 0.86, **dict.fromkeys(FLAT, 0.5)},
            {"ball": 0.55, "plane": 0.65, "singular vectors": 0.8, **dict.fromkeys(FLAT, 0.5)},
        ),
        "birds": entry(
            {"ball": 0.98, "plane": 0.97, "singular vectors": 0.9, **dict.fromkeys(FLAT, 0.5)},
            {"ball": 0.5, "plane": 0.5, "singular vectors": 0.55, **dict.fromkeys(FLAT, 0.5)},
            {"map": 0.9, "rank": 2.0},
        ),
        "karate": entry(dict.fromkeys(FLAT, 0.5), dict.fromkeys(FLAT, 0.5)),
    }
}


def test_the_verdict_names_models_below_a_rule_and_those_that_know_degrees_only():
    first, second = graph_tables.TABLES["graphs_verdict"](RESULT).splitlines()
    assert first.endswith(": 2 of 4 models, davis (ball 2, plane 2).")
    assert second.endswith(": 1 of 4 models, davis (ball 2).")


def test_gains_are_split_by_split_and_losses_bold():
    rows = graph_tables.TABLES["graphs_rules"](RESULT).splitlines()
    assert rows[2].startswith("| davis | 2 | 65.2 | 85.3 | singular vectors 86.2 | **−21.0 ±")
    assert rows[3].startswith("| birds | 2 | 98.2 | 97.3 | singular vectors 90.2 | +8.0 ±") and len(rows) == 4
    assert "karate" not in graph_tables.TABLES["graphs_rules_choice"](RESULT)


def test_other_tables():
    assert graph_tables.TABLES["graphs_degrees"](RESULT).splitlines()[2] == (
        "| davis | 2 | 55.0 | 65.0 | singular vectors 80.0 |"
    )
    karate = graph_tables.TABLES["graphs_methods_choice"](RESULT).splitlines()[2]
    assert karate == "| karate | 1,000 / 2,000 |  |  | **50.3** | **50.3** |  |"
    assert graph_tables.TABLES["graphs_whole"](RESULT).splitlines()[2:] == ["| birds | ball | 0.90 (2.0) |  |  |"]
