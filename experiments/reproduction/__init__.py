"""Support of the reproduction programs: trainings, tables and figures of the papers.

One matrix of trainings serves all experiments. A `Cell` names a training in the papers' terms, such
as `Cell("zappos50k", "supcon:closure")`, independent of the actual images. A `Setting` turns it
into a spec. Each cell is a sweep over seeds, named after the cell. All experiments with this cell
therefore share the sweep.

An experiment is a file of the folder `experiments` with a docstring (command, cost, claim), an
`EXPERIMENT` and three lines that run it. This is a figure:

    NAMES = ("mtcon", "mtcon-equal")

    def cells(setting: Setting) -> list[Cell]:
        shares = (0.0, 1.0) if setting.budget.name == "smoke" else (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
        return [
            Cell("zappos50k", name, noise=((("closure", share),) if share else ()))
            for name in NAMES
            for share in shares
        ]

    def claims() -> list[Claim]:
        return [Claim(BETTER, THAN, "brand", text="learned weights protect the held-out label")]

    def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
        some = trained[Cell("zappos50k", "mtcon")]
        accuracies = some.seeds("brand")            # fractions, one per seed, [] if it failed
        interval = some.interval("brand")           # mean, low, high; None if it failed
        weights = some.weights("closure")           # one per seed
        label = some.name_label("closure")          # such as "closure (colour)", for axes
        return Outcome(
            table=pd.DataFrame(...),                # becomes table.csv and table.md
            pictures={"Accuracy against wrong labels": png},
            verdicts=judge(setting, trained, claims()),
            notes=["Bars are 95 % intervals over seeds and test items."],
        )

    NAMED = ("mtcon_figure3", "MTCon, figure 3: label noise", CLAIM)
    EXPERIMENT = Experiment(*NAMED, cells, finish, claims)

    if __name__ == "__main__":
        main(EXPERIMENT)

- A cell with all defaults is shared with the tables. Therefore leave out changes to a default,
  such as a temperature of 0.1 (`TEMPERATURE`). `SYSTEMS` in `cells.py` has the systems. Add a
  figure's further systems there.
- `trained[cell].row` is a `mtcon_ray.comparison.row.Row`: `row.finished` has the trainings and
  `row.results.predictions_of(trial)` the path of test predictions. `spaces.open_trained` opens the
  network with its heads.
- Test `trained[cell].finished` first, because images may be missing and trainings may fail.
- `trends` tests claims beyond the difference of two systems' scores: rises and falls, differences
  of several scores, numbers by seed. `trends.decided` corrects them together.
- Draw with `mtcon_ray.display.plotting`.
- `reproduce.py` lists the experiments.

Modules: `data`, `budgets` and `cells` make specs. `running` trains them. `tables` and `grids` are
whole kinds of experiments, `above` has the claims of tables. `judging` and `trends` test claims.
`power` plans their detectable differences. `paper` has the printed values and the papers'
inconsistencies. `spaces` and `embeddings` inspect networks. `spiked` simulates theorem 1.
`figures`, `drawing`, `interval_table`, `files` and `page` write the output.
"""
