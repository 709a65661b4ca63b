// Reads cases (one JSON object a line) and answers them with kube-scheduler's NodeVolumeLimits and VolumeBinding.
//
// Nothing is requested from a server: the objects are put into the informers' stores.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	plugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"k8s.io/apimachinery/pkg/runtime"
)

type Case struct {
	Name        string                        `json:"name"`
	Nodes       []*v1.Node                    `json:"nodes"`
	Pods        []*v1.Pod                     `json:"pods"`
	Pod         *v1.Pod                       `json:"pod"`
	Claims      []*v1.PersistentVolumeClaim   `json:"claims"`
	Volumes     []*v1.PersistentVolume        `json:"volumes"`
	Classes     []*storage.StorageClass       `json:"classes"`
	CSINodes    []*storage.CSINode            `json:"csi_nodes"`
	CSIDrivers  []*storage.CSIDriver          `json:"csi_drivers"`
	Capacities  []*storage.CSIStorageCapacity `json:"capacities"`
	Attachments []*storage.VolumeAttachment   `json:"attachments"`
}

type Status struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
}

type Answer struct {
	Name string `json:"name"`
	// By plugin: the PreFilter where it did not succeed, and each node that is rejected.
	PreFilter map[string]Status            `json:"prefilter"`
	Filter    map[string]map[string]Status `json:"filter"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func fill[T any](informer cache.SharedIndexInformer, objects []T) {
	for _, one := range objects {
		check(informer.GetStore().Add(one))
	}
}

func status(s *fwk.Status) Status {
	return Status{Code: s.Code().String(), Reasons: append([]string{}, s.Reasons()...)}
}

func answer(c *Case) Answer {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactory(nil, 0)
	cfg, err := latest.Default()
	check(err)
	profile := cfg.Profiles[0]
	wanted := map[string]bool{"PrioritySort": true, "NodeVolumeLimits": true, "VolumeBinding": true, "DefaultBinder": true}
	profile.Plugins = profile.Plugins.DeepCopy()
	all := profile.Plugins.MultiPoint.Enabled
	profile.Plugins.MultiPoint.Enabled = nil
	for _, one := range all {
		if wanted[one.Name] {
			profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, one)
		}
	}
	made := map[string]fwk.Plugin{}
	registry := plugins.NewInTreeRegistry()
	for name, make := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := make(ctx, args, h)
			made[name] = p
			return p, err
		}
	}
	snapshot := internalcache.NewSnapshot(c.Pods, c.Nodes)
	_, err = frameworkruntime.NewFramework(ctx, registry, &profile,
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithLogger(klog.Background()),
	)
	check(err)
	core, disks := factory.Core().V1(), factory.Storage().V1()
	fill(core.Nodes().Informer(), c.Nodes)
	fill(core.Pods().Informer(), append(c.Pods, c.Pod))
	fill(core.PersistentVolumeClaims().Informer(), c.Claims)
	fill(core.PersistentVolumes().Informer(), c.Volumes)
	fill(disks.StorageClasses().Informer(), c.Classes)
	fill(disks.CSINodes().Informer(), c.CSINodes)
	fill(disks.CSIDrivers().Informer(), c.CSIDrivers)
	fill(disks.CSIStorageCapacities().Informer(), c.Capacities)
	fill(disks.VolumeAttachments().Informer(), c.Attachments)
	result := Answer{c.Name, map[string]Status{}, map[string]map[string]Status{}}
	nodes, err := snapshot.NodeInfos().List()
	check(err)
	for _, name := range []string{"NodeVolumeLimits", "VolumeBinding"} {
		state := framework.NewCycleState()
		_, s := made[name].(fwk.PreFilterPlugin).PreFilter(ctx, state, c.Pod, nodes)
		if !s.IsSuccess() {
			result.PreFilter[name] = status(s)
			continue
		}
		result.Filter[name] = map[string]Status{}
		for _, n := range nodes {
			if s := made[name].(fwk.FilterPlugin).Filter(ctx, state, c.Pod, n); !s.IsSuccess() {
				result.Filter[name][n.Node().Name] = status(s)
			}
		}
	}
	return result
}

func main() {
	metrics.Register()
	klog.SetOutput(os.Stderr)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<28)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		c := &Case{}
		check(json.Unmarshal(in.Bytes(), c))
		func() {
			defer func() {
				if r := recover(); r != nil {
					fmt.Fprintf(os.Stderr, "case %s: %v\n", c.Name, r)
				}
			}()
			check(out.Encode(answer(c)))
		}()
	}
}
