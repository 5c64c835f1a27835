package manifest

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/yamlfile"
)

// stepsKey is the key of the steps of a chain, the first of which is the request itself.
const stepsKey = "steps"

var stepKeys = keysOf(reflect.TypeFor[harp.ChainStep]())

// stepFields are what a step has that the request has, too.
var stepFields = []string{"procedure", "args", "silence_timeout", "max_exec_time", "retry"}

// spreadSteps puts the steps of a schedule where its request has them. What a step does not say is as the options have it.
func (r *reader) spreadSteps(form map[string]any) {
	list, is := form[stepsKey].([]any)
	delete(form, stepsKey)
	if !is {
		return
	}
	request, has := form["request"].(map[string]any)
	if !has {
		request = map[string]any{}
		form["request"] = request
	}
	for _, name := range []string{"procedure", "args"} {
		if _, twice := request[name]; twice {
			r.refuse(name, "is that of a step, where there are steps")
		}
	}
	if len(list) == 0 {
		r.refuse(stepsKey, "has none")
		return
	}
	for n, one := range list {
		step, ok := one.(map[string]any)
		if !ok {
			return // that is told
		}
		for _, name := range stepFields {
			if v, given := request[name]; given && n > 0 && step[name] == nil && name != "procedure" && name != "args" {
				step[name] = v
			}
		}
	}
	first := list[0].(map[string]any)
	if first["on"] != nil {
		r.refuse(stepsKey+"[0].on", "is of a step behind another")
	}
	for _, name := range stepFields {
		if v, given := first[name]; given {
			request[name] = v
		}
	}
	if len(list) > 1 {
		setAt(request, []string{"batch", "then"}, list[1:])
	}
}

// gatherSteps is the inverse of spreadSteps, for a chain.
func gatherSteps(form map[string]any) {
	then, is := at(form, []string{"request", "batch", "then"}).([]any)
	request, _ := form["request"].(map[string]any)
	if !is || request == nil {
		return
	}
	first := map[string]any{}
	for _, name := range stepFields {
		if v, given := request[name]; given {
			first[name] = v
			delete(request, name)
		}
	}
	form[stepsKey] = slices.Concat([]any{first}, then)
}

// ReadSteps reads the steps of a chain from the text of a file: a list of maps with procedure, args, on, silence_timeout,
// max_exec_time and retry. Errors: *yamlfile.Error, joined if there are several.
func ReadSteps(name string, text []byte) ([]harp.Step, error) {
	found, err := yamlfile.ParseAll(name, text)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 || found[0].Root.Kind != yaml.SequenceNode {
		return nil, &yamlfile.Error{File: name, Message: "must be one list of steps"}
	}
	r := reader{Document: found[0], left: maxValues}
	list := r.readMaps(r.Root, stepKeys, "")
	if err := joined(r.wrong); err != nil {
		return nil, err
	}
	var read []harp.ChainStep
	form, err := json.Marshal(list)
	if err == nil {
		err = json.Unmarshal(form, &read)
	}
	if err != nil {
		return nil, r.wrap(err)
	}
	steps := make([]harp.Step, len(read))
	for n, s := range read {
		steps[n] = harp.Step{Procedure: s.Procedure, Args: s.Args, On: s.On, Options: stepOptions(s)}
	}
	return steps, nil
}

func stepOptions(s harp.ChainStep) (opts []harp.Option) {
	for _, limit := range []struct {
		value  time.Duration
		option func(time.Duration) harp.Option
	}{{s.SilenceTimeout, harp.SilenceTimeout}, {s.MaxExecTime, harp.MaxExecTime}} {
		if limit.value != 0 {
			opts = append(opts, limit.option(limit.value))
		}
	}
	if !s.Retry.IsZero() {
		opts = append(opts, harp.Retry(s.Retry))
	}
	return opts
}
