"""Images: models that see, boxes, pictures of both."""

from glasshouse.vision import boxes, models
from glasshouse.vision.draw import draw_boxes, draw_mask
from glasshouse.vision.matching import assignment
