// Package gitops evaluates manifests/gitops with the libraries of Argo CD (gopher-lua) and Flux (cel-go, kstatus), on
// the statuses that api/src/summary_tests.rs writes to cases.json.
package gitops

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

const manifests = "../../manifests/gitops/"

type testCase struct {
	Title   string                     `json:"title"`
	Object  *unstructured.Unstructured `json:"object"`
	Kstatus string                     `json:"kstatus"`
	ArgoCD  string                     `json:"argocd"`
}

func cases(t *testing.T) []testCase {
	text, err := os.ReadFile("cases.json")
	var all []testCase
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil || len(all) < 20 {
		t.Fatalf("%d cases: %v", len(all), err)
	}
	return all
}

func read(t *testing.T, file string, into any) {
	text, err := os.ReadFile(manifests + file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// fresh returns the object as it is before the first status, and after an edit that no controller has seen.
func fresh(object *unstructured.Unstructured) (created, edited *unstructured.Unstructured) {
	created, edited = object.DeepCopy(), object.DeepCopy()
	unstructured.RemoveNestedField(created.Object, "status")
	edited.SetGeneration(object.GetGeneration() + 1)
	return created, edited
}

func kstatus(t *testing.T, object *unstructured.Unstructured) string {
	result, err := status.Compute(object)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status.String()
}

func TestKstatus(t *testing.T) {
	for _, one := range cases(t) {
		if found := kstatus(t, one.Object); found != one.Kstatus {
			t.Errorf("%s: %s, expected %s", one.Title, found, one.Kstatus)
		}
		created, edited := fresh(one.Object)
		// The reason for healthCheckExprs: kstatus knows no condition that an object lacks.
		if kstatus(t, created) != "Current" || kstatus(t, edited) != "InProgress" {
			t.Errorf("%s: created %s, edited %s", one.Title, kstatus(t, created), kstatus(t, edited))
		}
	}
}

// luaValue converts as Argo CD does: numbers of any type are Lua numbers.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(luaValue(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

// argocd runs a health script with the few libraries and the time limit of Argo CD.
func argocd(t *testing.T, script string, object *unstructured.Unstructured) (health, message string) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(limit)
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns a %s", state.Get(-1).Type())
	}
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

func TestArgoCD(t *testing.T) {
	var config struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Data             map[string]string
	}
	read(t, "argocd-cm.yaml", &config)
	for _, one := range cases(t) {
		script := config.Data["resource.customizations.health.olm.operatorframework.io_"+one.Object.GetKind()]
		found, message := argocd(t, script, one.Object)
		if found != one.ArgoCD || message == "" || message == "nil" {
			t.Errorf("%s: %s %q, expected %s", one.Title, found, message, one.ArgoCD)
		}
		created, edited := fresh(one.Object)
		for _, object := range []*unstructured.Unstructured{created, edited} {
			if found, _ := argocd(t, script, object); found != "Progressing" {
				t.Errorf("%s: %s at generation %d", one.Title, found, object.GetGeneration())
			}
		}
	}
}

// flux evaluates expressions in the order of Flux: a stale observedGeneration, inProgress, failed, current.
func flux(t *testing.T, exprs map[string]string, object *unstructured.Unstructured) string {
	observed, found, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if found && observed != object.GetGeneration() {
		return "InProgress"
	}
	env, err := cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		ext.Strings(), ext.Sets(), ext.Encoders())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range [][2]string{{"inProgress", "InProgress"}, {"failed", "Failed"}, {"current", "Current"}} {
		parsed, issues := env.Parse(exprs[one[0]])
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(parsed)
		if err != nil {
			t.Fatal(err)
		}
		// Flux keeps waiting for an object whose expressions cannot be evaluated.
		value, _, err := program.Eval(object.Object)
		if err != nil {
			return "Unknown"
		}
		if value.Value() == true {
			return one[1]
		}
	}
	return "InProgress"
}

func TestFlux(t *testing.T) {
	var kustomization struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Spec             struct {
			Interval, Timeout, Path string
			Prune                   bool
			SourceRef               map[string]string
			HealthChecks            []map[string]string
			HealthCheckExprs        []map[string]string
		}
	}
	read(t, "flux-kustomization.yaml", &kustomization)
	exprs := map[string]map[string]string{}
	for _, one := range kustomization.Spec.HealthCheckExprs {
		exprs[one["kind"]] = one
	}
	for _, one := range cases(t) {
		mine := exprs[one.Object.GetKind()]
		if found := flux(t, mine, one.Object); found != one.Kstatus {
			t.Errorf("%s: %s, expected %s", one.Title, found, one.Kstatus)
		}
		created, edited := fresh(one.Object)
		if flux(t, mine, created) != "Unknown" || flux(t, mine, edited) != "InProgress" {
			t.Errorf("%s: created %s, edited %s", one.Title, flux(t, mine, created), flux(t, mine, edited))
		}
	}
}
