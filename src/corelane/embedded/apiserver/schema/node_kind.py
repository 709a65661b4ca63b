"""Nodes."""

from corelane.embedded.apiserver.schema.derived_defaults import node_allocatable, pod_cidrs
from corelane.embedded.apiserver.schema.notation import Columns, record
from corelane.embedded.apiserver.schema.object_meta import kind

TAINT = record(
    "Taint",
    "key!=1|qualified-name! value=2 effect!=3|required timeAdded?:time=4",
    order="key @taint-value effect",
    effect=Columns(enum="NoSchedule PreferNoSchedule NoExecute"),
)

record("ConfigMapNodeConfigSource", "namespace!=1 name!=2 uid=3 resourceVersion=4 kubeletConfigKey!=5")

record("NodeConfigSource", "configMap?:ConfigMapNodeConfigSource=2")

record(
    "NodeSpec",
    "podCIDRs:[]string=7 providerID=3 unschedulable:bool=4 taints:[]Taint=5 "
    "configSource?:NodeConfigSource=6 externalID=2 podCIDR=1",
    defaults=(pod_cidrs,),
    podCIDRs=Columns(strategy="merge", list="set"),
)

record(
    "NodeCondition",
    "type!=1 status!=2 lastHeartbeatTime+:time=3 lastTransitionTime+:time=4 reason=5 message=6",
)

NODE_ADDRESS = record("NodeAddress", "type!=1 address!=2")

record("DaemonEndpoint", "Port!:int32=1")

record("NodeDaemonEndpoints", "kubeletEndpoint+:DaemonEndpoint=1")

record("NodeSwapStatus", "capacity?:int64=1")

record(
    "NodeSystemInfo",
    "machineID!=1 systemUUID!=2 bootID!=3 kernelVersion!=4 osImage!=5 containerRuntimeVersion!=6 "
    "kubeletVersion!=7 kubeProxyVersion!=8 operatingSystem!=9 architecture!=10 swap?:NodeSwapStatus=11",
)

record("ContainerImage", "names+:[]string=1 sizeBytes:int64=2")

record("AttachedVolume", "name!=1 devicePath!=2")

record(
    "NodeConfigStatus",
    "assigned?:NodeConfigSource=1 active?:NodeConfigSource=2 lastKnownGood?:NodeConfigSource=3 error=4",
)

record("NodeRuntimeHandlerFeatures", "recursiveReadOnlyMounts?:bool=1 userNamespaces?:bool=2")

record("NodeRuntimeHandler", "name+=1 features?:NodeRuntimeHandlerFeatures=2")

record("NodeFeatures", "supplementalGroupsPolicy?:bool=1")

record(
    "NodeStatus",
    "capacity:{}amount=1 allocatable:{}amount=2 phase=3 conditions:[]NodeCondition=4 "
    "addresses:[]NodeAddress=5 daemonEndpoints+:NodeDaemonEndpoints=6 nodeInfo+:NodeSystemInfo=7 "
    "images:[]ContainerImage=8 volumesInUse:[]string=9 volumesAttached:[]AttachedVolume=10 "
    "config?:NodeConfigStatus=11 runtimeHandlers:[]NodeRuntimeHandler=12 features?:NodeFeatures=13 "
    "declaredFeatures:[]string=14",
    defaults=(node_allocatable,),
    conditions=Columns(merge="type"),
    addresses=Columns(merge="type"),
)


NODE = kind(
    "Node",
    "spec+:NodeSpec=2 status+:NodeStatus=3",
    order="@taints @node-resources @swap @declared-features @pod-cidrs",
)
