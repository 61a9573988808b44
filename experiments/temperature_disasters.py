"""MTCon, figure 7, top row: accuracy of each disaster task against the temperature.

    python experiments/temperature_disasters.py --budget small --photos FOLDER

Cost: 7 trainings a seed, 3 at smoke, and the two baselines. On two cores a minute at smoke.

Claim: a temperature of 0.1 is best, far lower and far higher ones are worse.

Figure 7 of MTCon, on MEDIC. The paper prints no accuracies for it.
"""

from experiments.reproduction.command import main
from experiments.reproduction.experiment import described
from experiments.temperature_figure import of

EXPERIMENT = of("medic").experiment(described(__file__, __doc__))

if __name__ == "__main__":
    main(EXPERIMENT)
