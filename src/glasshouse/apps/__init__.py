"""Applications: a model trained on real data by `glasshouse train NAME`, a file each."""

from glasshouse.apps.app import App, AppRecipe, Training
from glasshouse.apps.catalog import APPS, find_app
from glasshouse.apps.run import load_app, train_app
