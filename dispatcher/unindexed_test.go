package dispatcher_test

import (
	"context"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
)

// Jobs are found by who submitted them and by their arguments, also where a page has none of them.
func TestJobsAreFoundByWhoSubmittedThemAndByArguments(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		sys.agent("web01", func(a *agent.Agent) {
			agent.Handle(a, harp.NewProc[any, any]("p"), func(context.Context, any) (any, error) { return nil, nil })
		})
		submit := func(args any) string {
			job := must[*harp.Job](t)(sys.caller.Host("web01").Call(t.Context(), "p", args))
			_ = must[harp.Value](t)(job.Get(t.Context()))
			return job.ID()
		}
		three := submit(harp.Args{"to": 3, "name": "3"})
		seven := submit(harp.Args{"to": "7", "in": map[string]int{"a": 1}})
		placed := submit(harp.Pos(3))
		who := must[harp.JobStatus](t)(sys.caller.Job(three).Status(t.Context())).Principal.Name
		for _, c := range []struct {
			filter harp.JobFilter
			want   []string
		}{
			{harp.JobFilter{By: who}, []string{placed, seven, three}},
			{harp.JobFilter{By: "nobody"}, nil},
			{harp.JobFilter{Args: map[string]string{"to": "3"}}, []string{three}},
			{harp.JobFilter{Args: map[string]string{"to": "3"}, Limit: 1}, []string{three}},
			{harp.JobFilter{Args: map[string]string{"to": "7"}, By: who}, []string{seven}},
			{harp.JobFilter{Args: map[string]string{"in": `{"a":1}`}}, []string{seven}},
			{harp.JobFilter{Args: map[string]string{"to": "3", "name": "4"}}, nil},
			{harp.JobFilter{Args: map[string]string{"none": ""}}, nil},
		} {
			var got []string
			for j, err := range sys.caller.Jobs(t.Context(), c.filter) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, j.ID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%+v: got %v, want %v", c.filter, got, c.want)
			}
		}
	})
}
