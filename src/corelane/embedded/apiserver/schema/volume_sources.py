"""Volumes of a pod: one record a source, and one row a storage driver that no node here can mount."""

from corelane.embedded.apiserver.schema import object_meta  # noqa: F401 - for the types that rows here name
from corelane.embedded.apiserver.schema.derived_defaults import empty_dir, volume_pull_policy
from corelane.embedded.apiserver.schema.notation import Columns, alike, record

record("LocalObjectReference", "name=1", name=Columns(default=""), atomic=True)

HOST_PATH = record(
    "HostPathVolumeSource",
    "path!=1|required|no-backsteps type?=2",
    order="@host-path",
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

KEY_TO_PATH = record("KeyToPath", "key!=1|required path!=2|required|local-path mode?:int32=3|file-mode")

record(
    "SecretVolumeSource",
    "secretName=1|required items:[]KeyToPath=2 defaultMode?:int32=3|file-mode optional?:bool=4",
    order="secretName defaultMode items",
    defaultMode=Columns(default=0o644),
)

record("PersistentVolumeClaimVolumeSource", "claimName!=1|required readOnly:bool=2")

record("ObjectFieldSelector", "apiVersion=1 fieldPath!=2", apiVersion=Columns(default="v1"), atomic=True)

record("ResourceFieldSelector", "containerName=1 resource!=2 divisor+:quantity=3", atomic=True)

DOWNWARD_API_VOLUME_FILE = record(
    "DownwardAPIVolumeFile",
    "path!=1|required|local-path fieldRef?:ObjectFieldSelector=2 resourceFieldRef?:ResourceFieldSelector=3 "
    "mode?:int32=4|file-mode",
    order="path @downward-source mode",
)

record(
    "DownwardAPIVolumeSource",
    "items:[]DownwardAPIVolumeFile=1 defaultMode?:int32=2|file-mode",
    order="defaultMode @downward-items",
    defaultMode=Columns(default=0o644),
)

record(
    "ConfigMapVolumeSource",
    "name=1.1|required items:[]KeyToPath=2 defaultMode?:int32=3|file-mode optional?:bool=4",
    order="name defaultMode items",
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
    "ClusterTrustBundleProjection",
    "name?=1 signerName?=2 labelSelector?:LabelSelector=3 optional?:bool=5 path!=4",
)

record(
    "PodCertificateProjection",
    "signerName=1 keyType=2 maxExpirationSeconds?:int32=3 credentialBundlePath=4 keyPath=5 "
    "certificateChainPath=6 userAnnotations:{}string=7",
)

record(
    "VolumeProjection",
    "secret?:SecretProjection=1 downwardAPI?:DownwardAPIProjection=2 configMap?:ConfigMapProjection=3 "
    "serviceAccountToken?:ServiceAccountTokenProjection=4 "
    "clusterTrustBundle?:ClusterTrustBundleProjection=5 podCertificate?:PodCertificateProjection=6",
    clusterTrustBundle=Columns(gated=True),
    podCertificate=Columns(gated=True),
)

record(
    "ProjectedVolumeSource",
    "sources+:[]VolumeProjection=1 defaultMode?:int32=2|file-mode",
    order="defaultMode @projections",
    defaultMode=Columns(default=0o644),
)

record("VolumeResourceRequirements", "limits:{}amount=1 requests:{}amount=2")

record("TypedLocalObjectReference", "apiGroup+:text-or-null=1 kind!=2 name!=3", atomic=True)

record("TypedObjectReference", "apiGroup+:text-or-null=1 kind!=2 name!=3 namespace?=4")

record(
    "PersistentVolumeClaimSpec",
    "accessModes:[]string=1 selector?:LabelSelector=4 resources+:VolumeResourceRequirements=2 "
    "volumeName=3 storageClassName?=5 volumeMode?=6 dataSource?:TypedLocalObjectReference=7 "
    "dataSourceRef?:TypedObjectReference=8 volumeAttributesClassName?=9",
    order="@claim-modes-given selector @claim-spec",
    volumeMode=Columns(default="Filesystem", enum="Block Filesystem"),
)

record(
    "PersistentVolumeClaimTemplate",
    "metadata+:ObjectMeta=1 spec!:PersistentVolumeClaimSpec=2",
    order="@template-metadata spec",
)

record("EphemeralVolumeSource", "volumeClaimTemplate?:PersistentVolumeClaimTemplate=1|required")

record(
    "ImageVolumeSource",
    "reference=1|required pullPolicy=2|required",
    pullPolicy=Columns(default=volume_pull_policy, enum="Always IfNotPresent Never"),
)
record(
    "CSIVolumeSource",
    "driver!=1|required readOnly?:bool=2 fsType?=3 volumeAttributes:{}string=4 "
    "nodePublishSecretRef?:LocalObjectReference=5",
)


# Storage drivers that no node here can mount: only the form of their fields is checked.
record(
    "GCEPersistentDiskVolumeSource",
    "pdName!=1|required fsType=2 partition:int32=3 readOnly:bool=4",
    pdName=Columns(go="PDName"),
)
record("AWSElasticBlockStoreVolumeSource", "volumeID!=1|required fsType=2 partition:int32=3 readOnly:bool=4")
record("GitRepoVolumeSource", "repository!=1|required revision=2 directory=3")
record("NFSVolumeSource", "server!=1|required path!=2|required|absolute-path! readOnly:bool=3")
record(
    "ISCSIVolumeSource",
    "targetPortal!=1|required iqn!=2|required lun?:int32=3 iscsiInterface=4 fsType=5 readOnly:bool=6 "
    "portals:[]string=7 chapAuthDiscovery:bool=8 chapAuthSession:bool=11 secretRef?:LocalObjectReference=10 "
    "initiatorName?=12",
    iscsiInterface=Columns(default="default"),
)
record("GlusterfsVolumeSource", "endpoints!=1|required path!=2|required readOnly:bool=3")
record(
    "RBDVolumeSource",
    "monitors!:[]string=1|required image!=2|required fsType=3 pool=4 user=5 keyring=6 "
    "secretRef?:LocalObjectReference=7 readOnly:bool=8",
    pool=Columns(default="rbd"),
    user=Columns(default="admin"),
    keyring=Columns(default="/etc/ceph/keyring"),
)
record(
    "QuobyteVolumeSource",
    "registry!=1 volume!=2|required readOnly:bool=3 user=4 group=5 tenant=6",
    order="@quobyte-registry volume",
)
record(
    "FlexVolumeSource",
    "driver!=1|required fsType=2 secretRef?:LocalObjectReference=3 readOnly:bool=4 options:{}string=5",
)
record(
    "CinderVolumeSource", "volumeID!=1|required fsType=2 readOnly:bool=3 secretRef?:LocalObjectReference=4"
)
record(
    "CephFSVolumeSource",
    "monitors!:[]string=1|required path=2 user=3 secretFile=4 secretRef?:LocalObjectReference=5 "
    "readOnly:bool=6",
)
record("FlockerVolumeSource", "datasetName=1 datasetUUID=2", order="@flocker-dataset")
record(
    "FCVolumeSource",
    "targetWWNs:[]string=1 lun?:int32=2 fsType=3 readOnly:bool=4 wwids:[]string=5",
    order="@fibre-channel",
    wwids=Columns(go="WWIDs"),
)
record("AzureFileVolumeSource", "secretName!=1|required shareName!=2|required readOnly:bool=3")
record(
    "VsphereVirtualDiskVolumeSource", "volumePath!=1|required fsType=2 storagePolicyName=3 storagePolicyID=4"
)
record(
    "AzureDiskVolumeSource",
    "diskName!=1|required diskURI!=2|required cachingMode?=3 fsType?=4 readOnly?:bool=5 kind?=6",
    order="diskName diskURI @azure-disk",
    diskURI=Columns(go="DataDiskURI"),
    cachingMode=Columns(default="ReadWrite"),
    fsType=Columns(default="ext4"),
    readOnly=Columns(default=False),
    kind=Columns(default="Shared"),
)
record("PhotonPersistentDiskVolumeSource", "pdID!=1|required fsType=2")
record("PortworxVolumeSource", "volumeID!=1|required fsType=2 readOnly:bool=3")
record(
    "ScaleIOVolumeSource",
    "gateway!=1|required system!=2|required secretRef?:LocalObjectReference=3 sslEnabled:bool=4 "
    "protectionDomain=5 storagePool=6 storageMode=7 volumeName!=8|required fsType=9 readOnly:bool=10",
    storageMode=Columns(default="ThinProvisioned"),
    fsType=Columns(default="xfs"),
)
record(
    "StorageOSVolumeSource",
    "volumeName!=1|required volumeNamespace=2 fsType=3 readOnly:bool=4 secretRef?:LocalObjectReference=5",
)

VOLUME = record(
    "Volume",
    "name!=1 hostPath?:HostPathVolumeSource=2.1 emptyDir?:EmptyDirVolumeSource=2.2 "
    "gcePersistentDisk?:GCEPersistentDiskVolumeSource=2.3 "
    "awsElasticBlockStore?:AWSElasticBlockStoreVolumeSource=2.4 gitRepo?:GitRepoVolumeSource=2.5 "
    "secret?:SecretVolumeSource=2.6 nfs?:NFSVolumeSource=2.7 iscsi?:ISCSIVolumeSource=2.8 "
    "glusterfs?:GlusterfsVolumeSource=2.9 persistentVolumeClaim?:PersistentVolumeClaimVolumeSource=2.10 "
    "rbd?:RBDVolumeSource=2.11 quobyte?:QuobyteVolumeSource=2.21 flexVolume?:FlexVolumeSource=2.12 "
    "cinder?:CinderVolumeSource=2.13 cephfs?:CephFSVolumeSource=2.14 flocker?:FlockerVolumeSource=2.15 "
    "downwardAPI?:DownwardAPIVolumeSource=2.16 fc?:FCVolumeSource=2.17 "
    "azureFile?:AzureFileVolumeSource=2.18 configMap?:ConfigMapVolumeSource=2.19 "
    "vsphereVolume?:VsphereVirtualDiskVolumeSource=2.20 azureDisk?:AzureDiskVolumeSource=2.22 "
    "photonPersistentDisk?:PhotonPersistentDiskVolumeSource=2.23 projected?:ProjectedVolumeSource=2.26 "
    "portworxVolume?:PortworxVolumeSource=2.24 scaleIO?:ScaleIOVolumeSource=2.25 "
    "storageos?:StorageOSVolumeSource=2.27 csi?:CSIVolumeSource=2.28 ephemeral?:EphemeralVolumeSource=2.29 "
    "image?:ImageVolumeSource=2.30",
    order="@volume-source",
    defaults=(empty_dir,),
)
