// Reads cases (one JSON object a line) and answers them with kube-scheduler's own plugins.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apicore "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	plugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type Case struct {
	Name       string                        `json:"name"`
	Family     string                        `json:"family"`
	Nodes      []*v1.Node                    `json:"nodes"`
	Pods       []*v1.Pod                     `json:"pods"`
	Pod        *v1.Pod                       `json:"pod"`
	Nominated  []*v1.Pod                     `json:"nominated"`
	Namespaces []*v1.Namespace               `json:"namespaces"`
	Services   []*v1.Service                 `json:"services"`
	Claims     []*v1.PersistentVolumeClaim   `json:"claims"`
	Volumes    []*v1.PersistentVolume        `json:"volumes"`
	Classes    []*storage.StorageClass       `json:"classes"`
	Budgets    []*policy.PodDisruptionBudget `json:"budgets"`
}

type Status struct {
	Code    string   `json:"code"`
	Reasons []string `json:"reasons"`
	Nodes   []string `json:"nodes,omitempty"`
}
type Victims struct {
	Pods       []string `json:"pods"`
	Violations int64    `json:"violations"`
}
type Preemption struct {
	Eligible   bool               `json:"eligible"`
	Why        string             `json:"why,omitempty"`
	Candidates map[string]Victims `json:"candidates"`
	Winners    []string           `json:"winners"`
	Helpless   map[string]Status  `json:"helpless,omitempty"`
}
type Want struct {
	PreFilter  map[string]Status            `json:"prefilter"`
	Filter     map[string]map[string]Status `json:"filter"`
	Feasible   []string                     `json:"feasible"`
	Scores     map[string]map[string]int64  `json:"scores"`
	Total      map[string]int64             `json:"total"`
	Message    string                       `json:"message,omitempty"`
	Plugins    []string                     `json:"plugins,omitempty"`
	Preemption *Preemption                  `json:"preemption,omitempty"`
}
type Answer struct {
	Name string `json:"name"`
	Want Want   `json:"want"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func status(s *fwk.Status) Status {
	if s == nil {
		return Status{Code: "Success", Reasons: []string{}}
	}
	return Status{Code: s.Code().String(), Reasons: append([]string{}, s.Reasons()...)}
}

// stored returns the pod as an API server keeps it: defaults, and match label keys merged into selectors.
func stored(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	keep := pod.Status.DeepCopy()
	corev1.SetObjectDefaults_Pod(pod)
	in := &apicore.Pod{}
	check(legacyscheme.Scheme.Convert(pod, in, nil))
	ctx := genericrequest.WithNamespace(context.Background(), pod.Namespace)
	podregistry.Strategy.PrepareForCreate(ctx, in)
	out := &v1.Pod{}
	check(legacyscheme.Scheme.Convert(in, out, nil))
	out.Status = *keep
	out.UID = pod.UID
	return out
}

func run(c *Case) Answer {
	logger := klog.Background()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var objs []runtime.Object
	pod := stored(c.Pod)
	pods := make([]*v1.Pod, len(c.Pods))
	for i, p := range c.Pods {
		pods[i] = stored(p)
	}
	volumes := len(c.Claims)+len(c.Volumes)+len(c.Classes) > 0
	for _, o := range c.Claims {
		objs = append(objs, o)
	}
	for _, o := range c.Volumes {
		objs = append(objs, o)
	}
	for _, o := range c.Classes {
		objs = append(objs, o)
	}
	if volumes {
		for _, o := range c.Nodes {
			objs = append(objs, o)
		}
	}
	client := fake.NewSimpleClientset(objs...)
	factory := informers.NewSharedInformerFactory(client, 0)
	cfg, err := latest.Default()
	check(err)
	profile := cfg.Profiles[0]
	off := map[string]bool{"DynamicResources": true, "NodeVolumeLimits": true, "NodeDeclaredFeatures": true}
	var on []config.Plugin
	for _, p := range profile.Plugins.MultiPoint.Enabled {
		if !off[p.Name] {
			on = append(on, p)
		}
	}
	weights := map[string]int64{}
	for _, p := range on {
		weights[p.Name] = int64(max(p.Weight, 1))
	}
	profile.Plugins = profile.Plugins.DeepCopy()
	profile.Plugins.MultiPoint.Enabled = on
	instances := map[string]fwk.Plugin{}
	registry := plugins.NewInTreeRegistry()
	for name, make := range registry {
		registry[name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := make(ctx, args, h)
			instances[name] = p
			return p, err
		}
	}
	snapshot := internalcache.NewSnapshot(pods, c.Nodes)
	nominator := internalqueue.NewSchedulingQueue(nil, factory)
	fw, err := frameworkruntime.NewFramework(ctx, registry, &profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithPodNominator(nominator),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		frameworkruntime.WithLogger(logger),
	)
	check(err)
	if volumes {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		time.Sleep(25 * time.Millisecond)
	}
	for _, o := range c.Namespaces {
		check(factory.Core().V1().Namespaces().Informer().GetStore().Add(o))
	}
	for _, o := range c.Services {
		check(factory.Core().V1().Services().Informer().GetStore().Add(o))
	}
	for _, p := range append(pods, pod) {
		check(factory.Core().V1().Pods().Informer().GetStore().Add(p))
	}
	for _, p := range c.Nominated {
		p = stored(p)
		check(factory.Core().V1().Pods().Informer().GetStore().Add(p))
		info, err := framework.NewPodInfo(p)
		check(err)
		nominator.AddNominatedPod(logger, info, nil)
	}
	want := Want{PreFilter: map[string]Status{}, Filter: map[string]map[string]Status{}, Feasible: []string{},
		Scores: map[string]map[string]int64{}, Total: map[string]int64{}}
	if c.Family == "preemption" {
		want.Preemption = preempt(ctx, fw, instances, snapshot, c, pod)
		return Answer{c.Name, want}
	}
	nodes, err := snapshot.NodeInfos().List()
	check(err)
	state := framework.NewCycleState()
	refused := map[string]bool{}
	all := false
	for _, p := range on {
		plugin := instances[p.Name]
		skip := false
		if pre, ok := plugin.(fwk.PreFilterPlugin); ok {
			result, s := pre.PreFilter(ctx, state, pod, nodes)
			skip = s.IsSkip()
			answer := status(s)
			if !result.AllNodes() {
				answer.Nodes = []string{}
				for n := range result.NodeNames {
					answer.Nodes = append(answer.Nodes, n)
				}
				sort.Strings(answer.Nodes)
				for _, n := range nodes {
					if !result.NodeNames.Has(n.Node().Name) {
						refused[n.Node().Name] = true
					}
				}
			}
			if (!s.IsSuccess() && !s.IsSkip()) || !result.AllNodes() {
				want.PreFilter[p.Name] = answer
			}
			if s.IsRejected() || s.Code() == fwk.Error {
				all = true
				continue
			}
		}
		filter, ok := plugin.(fwk.FilterPlugin)
		if !ok || skip {
			continue
		}
		for _, n := range nodes {
			if s := filter.Filter(ctx, state, pod, n); !s.IsSuccess() {
				name := n.Node().Name
				if want.Filter[name] == nil {
					want.Filter[name] = map[string]Status{}
				}
				want.Filter[name][p.Name] = status(s)
				refused[name] = true
			}
		}
	}
	var feasible []fwk.NodeInfo
	for _, n := range nodes {
		if !all && !refused[n.Node().Name] {
			feasible = append(feasible, n)
			want.Feasible = append(want.Feasible, n.Node().Name)
		}
	}
	sort.Strings(want.Feasible)
	if len(feasible) > 0 {
		scored(ctx, fw, pod, feasible, weights, &want)
	} else {
		explained(ctx, fw, pod, nodes, &want)
	}
	return Answer{c.Name, want}
}

// explained records the message of the pod's condition, and the plugins that rejected it, as the scheduling cycle makes them.
func explained(ctx context.Context, fw framework.Framework, pod *v1.Pod, nodes []fwk.NodeInfo, want *Want) {
	state := framework.NewCycleState()
	count := len(nodes)
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	allowed, s, unscheduled := fw.RunPreFilterPlugins(ctx, state, pod)
	diagnosis.UnschedulablePlugins = unscheduled
	if s.Code() == fwk.Error {
		return
	}
	if !s.IsSuccess() {
		diagnosis.NodeToStatus.SetAbsentNodesStatus(s)
		diagnosis.PreFilterMsg = s.Message()
		diagnosis.AddPluginStatus(s)
		nodes = nil
	} else if !allowed.AllNodes() {
		diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(unscheduled))))
	}
	for _, n := range nodes {
		if !allowed.AllNodes() && !allowed.NodeNames.Has(n.Node().Name) {
			continue
		}
		if s := fw.RunFilterPlugins(ctx, state, pod, n); !s.IsSuccess() {
			diagnosis.NodeToStatus.Set(n.Node().Name, s)
			diagnosis.AddPluginStatus(s)
		}
	}
	fit := &framework.FitError{Pod: pod, NumAllNodes: count, Diagnosis: diagnosis}
	want.Message = fit.Error()
	want.Plugins = sets.List(diagnosis.UnschedulablePlugins)
}

func scored(ctx context.Context, fw framework.Framework, pod *v1.Pod, feasible []fwk.NodeInfo, weights map[string]int64, want *Want) {
	state := framework.NewCycleState()
	_, s, _ := fw.RunPreFilterPlugins(ctx, state, pod)
	if !s.IsSuccess() {
		panic(s.Message())
	}
	for _, n := range feasible {
		if s := fw.RunFilterPlugins(ctx, state, pod, n); !s.IsSuccess() {
			panic(s.Message())
		}
	}
	if s := fw.RunPreScorePlugins(ctx, state, pod, feasible); !s.IsSuccess() {
		panic(s.Message())
	}
	scores, s := fw.RunScorePlugins(ctx, state, pod, feasible)
	if !s.IsSuccess() {
		panic(s.Message())
	}
	for _, n := range scores {
		want.Total[n.Name] = n.TotalScore
		for _, one := range n.Scores {
			if want.Scores[one.Name] == nil {
				want.Scores[one.Name] = map[string]int64{}
			}
			want.Scores[one.Name][n.Name] = one.Score / weights[one.Name]
		}
	}
}

func preempt(ctx context.Context, fw framework.Framework, instances map[string]fwk.Plugin, snapshot *internalcache.Snapshot, c *Case, pod *v1.Pod) *Preemption {
	pl := instances["DefaultPreemption"].(*defaultpreemption.DefaultPreemption)
	result := &Preemption{Candidates: map[string]Victims{}, Winners: []string{}, Helpless: map[string]Status{}}
	state := framework.NewCycleState()
	nodes, err := snapshot.NodeInfos().List()
	check(err)
	statuses := framework.NewDefaultNodeToStatus()
	allowed, s, _ := fw.RunPreFilterPlugins(ctx, state, pod)
	if !s.IsSuccess() {
		statuses.SetAbsentNodesStatus(s)
	} else {
		for _, n := range nodes {
			name := n.Node().Name
			if !allowed.AllNodes() && !allowed.NodeNames.Has(name) {
				statuses.Set(name, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node is filtered out by the prefilter result"))
			} else if s := fw.RunFilterPluginsWithNominatedPods(ctx, state, pod, n); !s.IsSuccess() {
				statuses.Set(name, s)
			} else {
				panic("fits without preemption")
			}
		}
	}
	result.Eligible, result.Why = pl.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName))
	if !result.Eligible {
		return result
	}
	potential, err := statuses.NodesForStatusCode(snapshot.NodeInfos(), fwk.Unschedulable)
	check(err)
	if len(potential) == 0 {
		return result
	}
	candidates, helpless, err := pl.Evaluator.DryRunPreemption(ctx, state, pod, potential, c.Budgets, 0, int32(len(potential)))
	check(err)
	for _, n := range potential {
		if s := helpless.Get(n.Node().Name); s.Code() != fwk.UnschedulableAndUnresolvable || len(s.Reasons()) > 0 {
			result.Helpless[n.Node().Name] = status(s)
		}
	}
	for _, one := range candidates {
		v := Victims{Violations: one.Victims().NumPDBViolations}
		for _, p := range one.Victims().Pods {
			v.Pods = append(v.Pods, p.Namespace+"/"+p.Name)
		}
		result.Candidates[one.Name()] = v
		delete(result.Helpless, one.Name())
	}
	winners := map[string]bool{}
	for i := 0; i < 40 && len(candidates) > 0; i++ {
		winners[pl.Evaluator.SelectCandidate(ctx, candidates).Name()] = true
	}
	for n := range winners {
		result.Winners = append(result.Winners, n)
	}
	sort.Strings(result.Winners)
	return result
}

func answer(c *Case) (a Answer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
			if os.Getenv("STACK") != "" {
				debug.PrintStack()
			}
		}
	}()
	return run(c), nil
}

func main() {
	metrics.Register()
	klog.SetOutput(os.Stderr)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(make([]byte, 1<<20), 1<<28)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		c := &Case{}
		check(json.Unmarshal(in.Bytes(), c))
		a, err := answer(c)
		if err != nil {
			fmt.Fprintf(os.Stderr, "case %s: %v\n", c.Name, err)
			continue
		}
		line, err := json.Marshal(a)
		check(err)
		out.Write(line)
		out.WriteByte('\n')
		out.Flush()
	}
}
