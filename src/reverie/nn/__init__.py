from .tiles import spare_hollow_tiles

spare_hollow_tiles()  # here, as it is too late once torch has multiplied
