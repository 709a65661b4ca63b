"""PersistentVolumeClaims, PersistentVolumes and StorageClasses."""

from corelane.embedded.apiserver.schema import (  # noqa: F401 - for the types that rows here name
    core_kinds,
    pod_spec,
    volume_sources,
)
from corelane.embedded.apiserver.schema.notation import CORE, TYPES, Columns, record
from corelane.embedded.apiserver.schema.object_meta import kind

STORAGE = "io.k8s.api.storage.v1."


# --- claims; their specification is among the volumes of a pod, which has templates of claims

CLAIM_SPEC = TYPES[f"{CORE}PersistentVolumeClaimSpec"]

record(
    "PersistentVolumeClaimCondition",
    "type!=1 status!=2 lastProbeTime+:time=3 lastTransitionTime+:time=4 reason=5 message=6",
)

record("ModifyVolumeStatus", "targetVolumeAttributesClassName=1 status!=2")

record(
    "PersistentVolumeClaimStatus",
    "phase=1 accessModes:[]string=2 capacity:{}amount=3 conditions:[]PersistentVolumeClaimCondition=4 "
    "allocatedResources:{}amount=5 allocatedResourceStatuses:{}string=7 "
    "currentVolumeAttributesClassName?=8 modifyVolumeStatus?:ModifyVolumeStatus=9",
    phase=Columns(default="Pending", enum="Bound Lost Pending"),
    conditions=Columns(merge="type"),
    allocatedResourceStatuses=Columns(atomic=False),
)

PERSISTENT_VOLUME_CLAIM = kind(
    "PersistentVolumeClaim",
    "spec+:PersistentVolumeClaimSpec=2 status+:PersistentVolumeClaimStatus=3",
    order="spec",
)


# --- volumes: of the sources a pod can name too, some are of another type here

record("SecretReference", "name=1 namespace=2", atomic=True)

record(
    "GlusterfsPersistentVolumeSource",
    "endpoints!=1|required path!=2|required readOnly:bool=3 endpointsNamespace?=4",
    endpoints=Columns(go="EndpointsName"),
)
record(
    "RBDPersistentVolumeSource",
    "monitors!:[]string=1|required image!=2|required fsType=3 pool=4 user=5 keyring=6 "
    "secretRef?:SecretReference=7 readOnly:bool=8",
    monitors=Columns(go="CephMonitors"),
    image=Columns(go="RBDImage"),
    pool=Columns(default="rbd", go="RBDPool"),
    user=Columns(default="admin", go="RadosUser"),
    keyring=Columns(default="/etc/ceph/keyring"),
)
record(
    "ISCSIPersistentVolumeSource",
    "targetPortal!=1|required iqn!=2|required lun!:int32=3 iscsiInterface=4 fsType=5 readOnly:bool=6 "
    "portals:[]string=7 chapAuthDiscovery:bool=8 chapAuthSession:bool=11 secretRef?:SecretReference=10 "
    "initiatorName?=12",
    iqn=Columns(go="IQN"),
    iscsiInterface=Columns(default="default"),
    chapAuthDiscovery=Columns(go="DiscoveryCHAPAuth"),
    chapAuthSession=Columns(go="SessionCHAPAuth"),
)
record(
    "CinderPersistentVolumeSource",
    "volumeID!=1|required fsType=2 readOnly:bool=3 secretRef?:SecretReference=4",
)
record(
    "CephFSPersistentVolumeSource",
    "monitors!:[]string=1|required path=2 user=3 secretFile=4 secretRef?:SecretReference=5 readOnly:bool=6",
)
record(
    "FlexPersistentVolumeSource",
    "driver!=1|required fsType=2 secretRef?:SecretReference=3 readOnly:bool=4 options:{}string=5",
)
record(
    "AzureFilePersistentVolumeSource",
    "secretName!=1|required shareName!=2|required readOnly:bool=3 secretNamespace+:text-or-null=4",
)
record(
    "ScaleIOPersistentVolumeSource",
    "gateway!=1|required system!=2|required secretRef?:SecretReference=3 sslEnabled:bool=4 "
    "protectionDomain=5 storagePool=6 storageMode=7 volumeName=8|required fsType=9 readOnly:bool=10",
    sslEnabled=Columns(go="SSLEnabled"),
    storageMode=Columns(default="ThinProvisioned"),
    fsType=Columns(default="xfs"),
)
record("LocalVolumeSource", "path!=1|required|no-backsteps fsType?=2")
record(
    "StorageOSPersistentVolumeSource",
    "volumeName=1|required volumeNamespace=2 fsType=3 readOnly:bool=4 secretRef?:ObjectReference=5",
)
record(
    "CSIPersistentVolumeSource",
    "driver!=1 volumeHandle!=2|required readOnly:bool=3 fsType=4 volumeAttributes:{}string=5 "
    "controllerPublishSecretRef?:SecretReference=6 nodeStageSecretRef?:SecretReference=7 "
    "nodePublishSecretRef?:SecretReference=8 controllerExpandSecretRef?:SecretReference=9 "
    "nodeExpandSecretRef?:SecretReference=10",
    order="@csi-driver volumeHandle @csi-secrets",
)

_SOURCES = (
    "gcePersistentDisk?:GCEPersistentDiskVolumeSource=1 "
    "awsElasticBlockStore?:AWSElasticBlockStoreVolumeSource=2 "
    "hostPath?:HostPathVolumeSource=3 glusterfs?:GlusterfsPersistentVolumeSource=4 nfs?:NFSVolumeSource=5 "
    "rbd?:RBDPersistentVolumeSource=6 quobyte?:QuobyteVolumeSource=15 iscsi?:ISCSIPersistentVolumeSource=7 "
    "flexVolume?:FlexPersistentVolumeSource=12 cinder?:CinderPersistentVolumeSource=8 "
    "cephfs?:CephFSPersistentVolumeSource=9 fc?:FCVolumeSource=10 flocker?:FlockerVolumeSource=11 "
    "azureFile?:AzureFilePersistentVolumeSource=13 vsphereVolume?:VsphereVirtualDiskVolumeSource=14 "
    "azureDisk?:AzureDiskVolumeSource=16 photonPersistentDisk?:PhotonPersistentDiskVolumeSource=17 "
    "portworxVolume?:PortworxVolumeSource=18 scaleIO?:ScaleIOPersistentVolumeSource=19 "
    "local?:LocalVolumeSource=20 storageos?:StorageOSPersistentVolumeSource=21 "
    "csi?:CSIPersistentVolumeSource=22"
)

VOLUME_SOURCE = record("PersistentVolumeSource", _SOURCES)
"""What of a volume's specification cannot change; JSON shows it inline."""

VOLUME_NODE_AFFINITY = record("VolumeNodeAffinity", "required?:NodeSelector=1")

VOLUME_SPEC = record(
    "PersistentVolumeSpec",
    f"capacity:{{}}amount=1 {_SOURCES.replace('=', '=2.')} accessModes:[]string=3 "
    "claimRef?:ObjectReference=4 persistentVolumeReclaimPolicy=5 storageClassName=6 "
    "mountOptions:[]string=7 volumeMode?=8 nodeAffinity?:VolumeNodeAffinity=9 volumeAttributesClassName?=10",
    order="@volume-spec",
    claimRef=Columns(atomic=False),
    persistentVolumeReclaimPolicy=Columns(default="Retain", enum="Delete Recycle Retain"),
    volumeMode=Columns(default="Filesystem", enum="Block Filesystem"),
)

record(
    "PersistentVolumeStatus",
    "phase=1 message=2 reason=3 lastPhaseTransitionTime?:time=4",
    phase=Columns(default="Pending", enum="Available Bound Failed Pending Released"),
)

PERSISTENT_VOLUME = kind(
    "PersistentVolume",
    "spec+:PersistentVolumeSpec=2 status+:PersistentVolumeStatus=3",
    order="spec @mount-options",
)


# --- storage classes

TOPOLOGY_LABEL = record("TopologySelectorLabelRequirement", "key!=1 values!:[]string=2")

TOPOLOGY_TERM = record(
    "TopologySelectorTerm", "matchLabelExpressions:[]TopologySelectorLabelRequirement=1", atomic=True
)

STORAGE_CLASS = kind(
    "StorageClass",
    "provisioner!=2 parameters:{}string=3 reclaimPolicy?=4 mountOptions:[]string=5 "
    "allowVolumeExpansion?:bool=6 volumeBindingMode?=7 allowedTopologies:[]TopologySelectorTerm=8",
    order="@storage-class",
    package=STORAGE,
    reclaimPolicy=Columns(default="Delete", enum="Delete Recycle Retain"),
    volumeBindingMode=Columns(default="Immediate", enum="Immediate WaitForFirstConsumer"),
)
