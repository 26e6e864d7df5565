"""Made a package of its own, since another one of this name may be installed, as pyarrow 17 does."""
