"""What a virtual node has instead of LVM, DRBD, RBD and memory of its own.

Ganeti's storage classes and its node information are replaced; everything above them is Ganeti's own. Volumes are
sparse files in the node's folder, and no name below /dev is ever used. A DRBD device is a small file that
says what the kernel would know of it, so it is gone after a crash; its peer's is looked at for the connection.

Settings are in the cluster's folder: `nodes.json`, and `sync-rate` (MiB/s of a resync; 0 is at once), which may be
changed at any time.
"""

import json
import os
import time

from ganeti import constants
from ganeti import errors
from ganeti import objects
from ganeti import utils
from ganeti.storage import base

HOME = os.environ["GANETI_ROOTDIR"]
CLUSTER, NODE = os.path.split(HOME)
MIB = 1024 * 1024
VOLUME_GROUP = "xenvg"
DOM0_MIB = 512
# After a short absence only what was written meanwhile is copied: this share of the whole.
DIRTY = 0.02


def settings():
    with open(os.path.join(CLUSTER, "nodes.json")) as source:
        return json.load(source)


def sync_rate():
    try:
        with open(os.path.join(CLUSTER, "sync-rate")) as source:
            return float(source.read())
    except (OSError, ValueError):
        return 0.0


class FileDevice(base.BlockDev):
    """A device that is a sparse file."""

    def __init__(self, unique_id, children, size, params, dyn_params, **kwargs):
        super().__init__(unique_id, children, size, params, dyn_params)
        self.dev_path = self.path_of(unique_id)
        self.major, self.minor = 253, 1
        self.Attach()

    @classmethod
    def path_of(cls, unique_id):
        raise NotImplementedError

    @classmethod
    def Create(cls, unique_id, children, size, spindles, params, excl_stor, dyn_params, **kwargs):
        path = cls.path_of(unique_id)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as device:
            device.truncate(int(size) * MIB)
        return cls(unique_id, children, size, params, dyn_params)

    def Attach(self, **kwargs):
        self.attached = os.path.exists(self.dev_path)
        return self.attached

    def Assemble(self):
        if not self.Attach():
            base.ThrowError("there is no volume %s", self.dev_path)

    def Open(self, force=False, exclusive=True):
        pass

    def Close(self):
        pass

    def Shutdown(self):
        pass

    def Remove(self):
        utils.RemoveFile(self.dev_path)

    def Rename(self, new_id):
        new = self.path_of(new_id)
        os.rename(self.dev_path, new)
        self.dev_path, self.unique_id = new, new_id

    def SetInfo(self, text):
        pass

    def Grow(self, amount, dryrun, backingstore, excl_stor):
        if backingstore and not dryrun:
            os.truncate(self.dev_path, os.path.getsize(self.dev_path) + int(amount) * MIB)

    def GetActualSize(self):
        return os.path.getsize(self.dev_path)


class LogicalVolume(FileDevice):
    """In place of LVM's: on the node's own disk."""

    @classmethod
    def path_of(cls, unique_id):
        group, name = unique_id
        return os.path.join(HOME, "lv", group, name)

    @staticmethod
    def sizes():
        """MiB by `group/name`."""
        found = {}
        top = os.path.join(HOME, "lv")
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found[os.path.relpath(path, top)] = os.path.getsize(path) / MIB
                except FileNotFoundError:
                    pass  # it was removed just now
        return found

    @classmethod
    def GetLvGlobalInfo(cls, **kwargs):
        return {path: ("-wi-ao", 253, 1, 1, []) for path in cls.sizes()}

    @classmethod
    def GetVGInfo(cls, vg_names, excl_stor, filter_readonly=True):
        total = settings()[NODE]["disk_mib"]
        free = total - sum(cls.sizes().values())
        return [(free, total, name) for name in vg_names or [VOLUME_GROUP]]

    @classmethod
    def GetVgSpindlesInfo(cls, vg_name):
        return (0, 0)

    @classmethod
    def GetPVInfo(cls, vg_names, filter_allocatable=True, include_lvs=False):
        return []


class Rbd(FileDevice):
    """In place of Ceph's: somewhere on the network."""

    @classmethod
    def path_of(cls, unique_id):
        return os.path.join(CLUSTER, "rbd", unique_id[1])


class Status(object):
    """What `/proc/drbd` says of one device."""

    is_in_use = True

    def __init__(self, there, network, connected, percent):
        self.is_diskless = self.is_unconfigured = not there
        self.is_standalone = there and not network
        self.is_in_resync = connected and percent is not None
        self.is_connected = connected and percent is None
        self.is_disk_uptodate = there and not self.is_in_resync
        self.peer_disk_uptodate = connected and percent is None
        self.sync_percent = percent

    def __getattr__(self, name):
        if name.startswith("is_"):
            return False
        raise AttributeError(name)


class Drbd(base.BlockDev):
    """In place of DRBD 8's, on two volumes of the node."""

    def __init__(self, unique_id, children, size, params, dyn_params, **kwargs):
        if children and children.count(None) > 0:
            children = []
        super().__init__(unique_id, children, size, params, dyn_params)
        self.major = 147
        self._port = unique_id[2]
        self._local = dyn_params.get(constants.DDP_LOCAL_MINOR)
        self._remote = dyn_params.get(constants.DDP_REMOTE_MINOR)
        self._peer_address = dyn_params.get(constants.DDP_REMOTE_IP)
        self.Attach()

    @staticmethod
    def _path(home, minor):
        return os.path.join(home, "drbd", "%s.json" % minor)

    def _read(self, home, minor):
        try:
            with open(self._path(home, minor)) as source:
                state = json.load(source)
        except (OSError, ValueError):
            return None
        return state if self._port is None or state["port"] in (None, self._port) else None

    def _state(self):
        return self._read(HOME, self._local)

    def _known_state(self):
        state = self._state()
        if state is None:
            base.ThrowError("drbd%s: it is not configured", self._local)
        return state

    def _write(self, state):
        path = self._path(HOME, self._local)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        utils.WriteFile(path, data=json.dumps(state))

    def _peer(self):
        """The other side's folder and state, if it answers."""
        for name, node in settings().items():
            if node["address"] == self._peer_address:
                home = os.path.join(CLUSTER, name)
                # A node that is down answers nobody.
                if os.path.exists(os.path.join(home, "down")):
                    return home, None
                return home, self._read(home, self._remote)
        return None, None

    def _synced(self, home):
        """A mark that outlives a crash. It is as old as the last end of a resync on that side."""
        return os.path.join(home, "drbd-synced", str(self._port))

    def _begun(self):
        """What a side knows of a connection that begins now: since when, and which share is to be copied."""
        known = os.path.exists(self._synced(HOME))
        return {"since": time.time(), "share": DIRTY if known else 1.0}

    def _percent(self, home, state):
        """How much of the whole is there, as one side has it."""
        try:
            if os.path.getmtime(self._synced(home)) >= state["since"]:
                return 100.0
        except FileNotFoundError:
            pass
        rate = sync_rate()
        if rate <= 0:
            return 100.0
        copied = (time.time() - state["since"]) * rate / max(self.size or 1, 1)
        return min(100.0, 100.0 * (1.0 - state["share"] + copied))

    def Attach(self, **kwargs):
        self.attached = self._state() is not None
        self.minor = self._local if self.attached else None
        self.dev_path = self._device() if self.attached else None
        return self.attached

    def _device(self):
        """Never a name below /dev: the machine may have such a device. It leads to the data's volume."""
        return os.path.join(HOME, "drbd", "%s.device" % self._local)

    @classmethod
    def Create(cls, unique_id, children, size, spindles, params, excl_stor, dyn_params, **kwargs):
        return cls(unique_id, children, size, params, dyn_params)

    def Assemble(self):
        state = self._state()
        network = self._port is not None
        if state is None or (network and not state["network"]):
            role = state["role"] if state else "Secondary"
            self._write({"port": self._port, "role": role, "network": network, **self._begun()})
        if self._children:
            utils.RemoveFile(self._device())
            os.symlink(self._children[0].dev_path, self._device())
        self.Attach()

    def Open(self, force=False, exclusive=True):
        state = self._known_state()
        _, peer = self._peer()
        if exclusive and peer and peer["network"] and state["network"] and peer["role"] == "Primary":
            base.ThrowError("drbd%s: the other side is primary", self._local)
        state["role"] = "Primary"
        self._write(state)

    def Close(self):
        state = self._known_state()
        state["role"] = "Secondary"
        self._write(state)

    def Shutdown(self):
        utils.RemoveFile(self._device())
        utils.RemoveFile(self._path(HOME, self._local))
        self.Attach()

    def Remove(self):
        self.Shutdown()
        utils.RemoveFile(self._synced(HOME))

    def Rename(self, new_id):
        raise errors.ProgrammerError("a DRBD device has no name")

    def SetInfo(self, text):
        pass

    def SetSyncParams(self, params):
        return []

    def PauseResumeSync(self, pause):
        return True

    def AddChildren(self, devices):
        self._children = devices

    def RemoveChildren(self, devices):
        self._children = []

    def Grow(self, amount, dryrun, backingstore, excl_stor):
        pass

    def GetActualSize(self):
        return int(self.size or 0) * MIB

    def DisconnectNet(self):
        state = self._known_state()
        state["network"] = False
        self._write(state)

    def AttachNet(self, multimaster):
        state = self._known_state()
        if not state["network"]:
            state.update(self._begun())
        state["network"] = True
        state["port"] = self._port
        self._write(state)

    def GetProcStatus(self):
        state, (peer_home, peer) = self._state(), self._peer()
        network = bool(state and state["network"])
        connected = bool(network and peer and peer["network"])
        percent = None
        if connected:
            sides = [(HOME, state), (peer_home, peer)]
            least = min(self._percent(*side) for side in sides)
            percent = least if least < 100.0 else None
            if percent is None:
                for home, _ in sides:
                    os.makedirs(os.path.dirname(self._synced(home)), exist_ok=True)
                    with open(self._synced(home), "w"):
                        pass
        return Status(state is not None, network, connected, percent)

    def GetSyncStatus(self):
        status = self.GetProcStatus()
        left = None
        if status.sync_percent is not None:
            left = int((100 - status.sync_percent) / 100.0 * self.size / max(sync_rate(), 0.001)) + 1
        return objects.BlockDevStatus(
            dev_path=self.dev_path,
            major=self.major,
            minor=self.minor,
            sync_percent=status.sync_percent,
            estimated_time=left,
            is_degraded=not status.is_connected,
            ldisk_status=constants.LDS_OKAY,
        )


def used_minors():
    try:
        return [int(name[: -len(".json")]) for name in os.listdir(os.path.join(HOME, "drbd")) if name.endswith(".json")]
    except FileNotFoundError:
        return []


class DrbdInfo(object):
    """What `/proc/drbd` says of all devices."""

    def GetVersion(self):
        return {"k_major": 8, "k_minor": 4, "k_point": 11, "api": 1, "proto": 86}

    def GetVersionString(self):
        return "8.4.11"

    def GetMinors(self):
        return used_minors()


def storage(bdev):
    """Called at the end of Ganeti's module of block devices."""
    bdev.LogicalVolume = LogicalVolume
    bdev.RADOSBlockDevice = Rbd
    bdev.DEV_MAP[constants.DT_PLAIN] = LogicalVolume
    bdev.DEV_MAP[constants.DT_DRBD8] = Drbd
    bdev.DEV_MAP[constants.DT_RBD] = Rbd
    from ganeti.storage import drbd

    drbd.DRBD8.GetUsermodeHelper = staticmethod(lambda filename=None: "/bin/true")
    drbd.DRBD8.GetUsedDevs = staticmethod(used_minors)
    drbd.DRBD8.GetProcInfo = staticmethod(DrbdInfo)
    drbd.DRBD8.ShutdownAll = staticmethod(lambda minor: None)
    utils.ListVolumeGroups = lambda: {VOLUME_GROUP: settings()[NODE]["disk_mib"]}


def node(backend):
    """Called at the end of Ganeti's module of what a node does."""
    backend.GetVolumeList = lambda vg_names: {
        path: ("%.2f" % size, False, True) for path, size in LogicalVolume.sizes().items()
    }
    backend._BOOT_ID_PATH = os.path.join(HOME, "boot_id")
    from ganeti.hypervisor import hv_fake

    measured = hv_fake.FakeHypervisor.GetNodeInfo

    def info(self, hvparams=None):
        answer = measured(self, hvparams)
        total = settings()[NODE]["memory_mib"]
        used = sum(row[2] for row in self.GetAllInstancesInfo())
        answer["memory_total"] = total
        answer["memory_dom0"] = DOM0_MIB
        answer["memory_free"] = max(0, total - DOM0_MIB - used)
        return answer

    hv_fake.FakeHypervisor.GetNodeInfo = info
