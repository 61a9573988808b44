"""MTCon, figure 7, bottom row: accuracy of each disaster task against the number of epochs.

    python experiments/epochs_disasters.py --budget small --photos FOLDER

Cost: 4 trainings a seed at small (as long as 8 usual trainings), 3 at smoke, 6 at paper, and
the two baselines. On two cores a minute at smoke.

Claim: longer training gives higher accuracy.

Figure 7 of MTCon, on MEDIC. The paper prints no accuracies for it.
"""

from experiments.epochs_figure import of
from experiments.reproduction.command import main
from experiments.reproduction.experiment import described

EXPERIMENT = of("medic").experiment(described(__file__, __doc__))

if __name__ == "__main__":
    main(EXPERIMENT)
