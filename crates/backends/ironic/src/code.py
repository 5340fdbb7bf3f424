import json
import os
from importlib import metadata

from alembic.script import ScriptDirectory
from ironic.common.release_mappings import RELEASE_MAPPING
from ironic.db import sqlalchemy
from ironic.db.sqlalchemy import models

# A release may be listed under several names: each is the same dictionary.
listed = {}
for name, versions in RELEASE_MAPPING.items():
    listed.setdefault(id(versions), (versions, []))[1].append(name)
print()
print(json.dumps({
    "version": metadata.version("ironic"),
    "releases": [
        {"names": names, "api": versions["api"], "rpc": versions["rpc"], "objects": versions["objects"]}
        for versions, names in listed.values()
    ],
    "heads": ScriptDirectory(os.path.join(os.path.dirname(sqlalchemy.__file__), "alembic")).get_heads(),
    "tables": {model.__name__: model.__tablename__ for model in models.Base.__subclasses__()},
}))
