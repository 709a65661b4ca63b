"""Volumes of a pod: records of the sources that name objects served here; others are stored as given."""

from corelane.embedded.apiserver.schema import object_meta  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.derived_defaults import empty_dir
from corelane.embedded.apiserver.schema.notation import Columns, alike, record

record("LocalObjectReference", "name=1", name=Columns(default=""), atomic=True)

record(
    "HostPathVolumeSource",
    "path!=1|required|no-backsteps type?=2",
    type=Columns(
        default="",
        enum=(
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ),
    ),
)

record("EmptyDirVolumeSource", "medium=1 sizeLimit?:quantity=2")

record("KeyToPath", "key!=1|required path!=2|required|local-path mode?:int32=3|0..511")

record(
    "SecretVolumeSource",
    "secretName=1|required items:[]KeyToPath=2 defaultMode?:int32=3|0..511 optional?:bool=4",
    defaultMode=Columns(default=0o644),
)

record(
    "ObjectFieldSelector", "apiVersion=1 fieldPath!=2|required", apiVersion=Columns(default="v1"), atomic=True
)

record("ResourceFieldSelector", "containerName=1 resource!=2|required divisor+:quantity=3", atomic=True)

record(
    "DownwardAPIVolumeFile",
    "path!=1|required|local-path fieldRef?:ObjectFieldSelector=2 resourceFieldRef?:ResourceFieldSelector=3 "
    "mode?:int32=4|0..511",
)

record(
    "DownwardAPIVolumeSource",
    "items:[]DownwardAPIVolumeFile=1 defaultMode?:int32=2|0..511",
    defaultMode=Columns(default=0o644),
)

record(
    "ConfigMapVolumeSource",
    "name=1.1|required items:[]KeyToPath=2 defaultMode?:int32=3|0..511 optional?:bool=4",
    name=Columns(default=""),
    defaultMode=Columns(default=0o644),
)

record("SecretProjection", "name=1.1 items:[]KeyToPath=2 optional?:bool=4", name=Columns(default=""))

record("DownwardAPIProjection", "items:[]DownwardAPIVolumeFile=1")

alike("SecretProjection", "ConfigMapProjection")

record(
    "ServiceAccountTokenProjection",
    "audience=1 expirationSeconds?:int64=2 path!=3",
    expirationSeconds=Columns(default=3600),
)

record(
    "VolumeProjection",
    "secret?:SecretProjection=1 downwardAPI?:DownwardAPIProjection=2 configMap?:ConfigMapProjection=3 "
    "serviceAccountToken?:ServiceAccountTokenProjection=4",
)

record(
    "ProjectedVolumeSource",
    "sources+:[]VolumeProjection=1 defaultMode?:int32=2|0..511",
    defaultMode=Columns(default=0o644),
)

VOLUME = record(
    "Volume",
    "name!=1|required|dns-label hostPath?:HostPathVolumeSource=2.1 emptyDir?:EmptyDirVolumeSource=2.2 "
    "gcePersistentDisk?:object=2.3 awsElasticBlockStore?:object=2.4 gitRepo?:object=2.5 "
    "secret?:SecretVolumeSource=2.6 nfs?:object=2.7 iscsi?:object=2.8 glusterfs?:object=2.9 "
    "persistentVolumeClaim?:object=2.10 rbd?:object=2.11 quobyte?:object=2.21 flexVolume?:object=2.12 "
    "cinder?:object=2.13 cephfs?:object=2.14 flocker?:object=2.15 "
    "downwardAPI?:DownwardAPIVolumeSource=2.16 fc?:object=2.17 azureFile?:object=2.18 "
    "configMap?:ConfigMapVolumeSource=2.19 vsphereVolume?:object=2.20 azureDisk?:object=2.22 "
    "photonPersistentDisk?:object=2.23 projected?:ProjectedVolumeSource=2.26 portworxVolume?:object=2.24 "
    "scaleIO?:object=2.25 storageos?:object=2.27 csi?:object=2.28 ephemeral?:object=2.29 image?:object=2.30",
    rules="volume-source",
    defaults=(empty_dir,),
)
