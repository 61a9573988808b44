"""Support of the reproduction programs: trainings, tables and figures of the papers.

One matrix of trainings serves all experiments. A `Cell` names a training in the papers' terms, as
`Cell("zappos50k", "supcon:closure")`, whatever images stand in for the paper's. A `Setting` turns
it into a spec. Each cell is one sweep over seeds, named after the cell, so that every experiment
which needs it finds it trained.

An experiment is a file of the folder `experiments` with a docstring (command, cost, claim), an
`EXPERIMENT` and three lines that run it. A figure looks like this:

    NAMES = ("mtcon", "mtcon-equal")

    def cells(setting: Setting) -> list[Cell]:
        shares = (0.0, 1.0) if setting.budget.name == "smoke" else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
        return [
            Cell("zappos50k", name, noise=((("closure", share),) if share else ()))
            for name in NAMES
            for share in shares
        ]

    def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
        some = trained[Cell("zappos50k", "mtcon")]
        accuracies = some.seeds("brand")            # fractions, one per seed, [] if it failed
        interval = some.interval("brand")           # mean, low, high; None if it failed
        weights = some.metric(metrics.weight(some.place("closure")[1]))
        label = some.source.name_label("closure")   # such as "closure (colour)", for axes
        claims = [Claim(better, than, "brand", text="learned weights protect the held-out label")]
        return Outcome(
            table=pd.DataFrame(...),                # becomes table.csv and table.md
            pictures={"Accuracy against wrong labels": png},
            verdicts=judge(setting, trained, claims),
            notes=["Bars are 95 % intervals over seeds and test items."],
        )

    EXPERIMENT = Experiment("mtcon_figure3", "MTCon, figure 3: label noise", CLAIM, cells, finish)

    if __name__ == "__main__":
        main(EXPERIMENT)

- A cell with all defaults is shared with the tables: leave out a change that is the default, such
  as a temperature of 0.1 (`TEMPERATURE`). `SYSTEMS` in `cells.py` has the systems; add what a
  figure needs.
- `trained[cell].row` is a `mtcon_ray.comparison.row.Row`: `row.finished` has the trainings,
  `row.results.predictions_of(trial)` the path of test predictions, and
  `mtcon_ray.paths.kept_model(mtcon_ray.paths.checkpoint_folder(row.results.folder, trial.name))`
  that of the network with its heads.
- Test `trained[cell].finished` first: images may be missing and trainings may fail.
- `Verdict` can be made directly for a claim that is no difference of two scores; its answer must be
  "not judged at this budget" unless `setting.budget.judges`. `answer_at` does that.
- Draw with `mtcon_ray.report.plotting`.
- `reproduce.py` lists the experiments.

Modules: `budgets`, `data`, `cells`, `experiment`, `files`, `paper` (printed values and the papers'
inconsistencies), `tables` (experiments that are tables), `page` (the report), `command`.
"""
