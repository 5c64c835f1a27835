package dispatcher_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/dispatcher"
)

// digestOf is the digest of a preview, as docs/protocol.md has it.
func digestOf(req harp.Request, names ...string) string {
	var b []byte
	for _, name := range names {
		b = append(b, byte(len(name)>>8), byte(len(name)))
		b = append(b, name...)
	}
	sum, of := sha256.Sum256(b), req.Digest()
	return fmt.Sprintf("%d-%x-%x", len(names), sum[:14], of[:14])
}

// A preview counts the hosts that a call would meet, and says which are away, and which cannot
// run it and why.
func TestPreviewSaysWhatACallWouldMeet(t *testing.T) {
	for _, w := range []wiring{embedded, inMemory, loopback} {
		t.Run(string(w), func(t *testing.T) {
			specs := dispatcher.StaticHosts{{Name: "web01"}, {Name: "web02"}, {Name: "web03"}}
			for i := range 700 {
				specs = append(specs, dispatcher.HostSpec{Name: fmt.Sprintf("db%03d", i)})
			}
			sys := newSystem(t, w, nil, dispatcher.Config{Hosts: specs})
			sys.agent("web01", greeter)
			sys.agent("web02", greeter)
			sys.agent("web03", newGate().register)
			sys.agent("web04", func(a *agent.Agent) {
				greeter(a)
				nothing := func(context.Context, struct{}) (any, error) { return nil, nil }
				agent.Handle(a, harp.NewProc[struct{}, any]("reboot"), nothing, agent.Dangerous())
			})

			got := must[harp.Preview](t)(sys.caller.Target("web*").Preview(t.Context(), "count", harp.Args{"to": 3}))
			if got.Hosts != 4 || got.Away != 0 || got.Unfit != 1 || got.Dangerous || got.Digest != digestOf(must[harp.Request](t)(harp.NewBatchRequest("web*", "count", harp.Args{"to": 3})), "web01", "web02", "web03", "web04") {
				t.Errorf("the preview is %+v", got)
			}
			if len(got.UnfitHosts) != 1 || got.UnfitHosts[0].Host != "web03" || !errors.Is(got.UnfitHosts[0].Err, harp.ErrNotFound) ||
				harp.FailureOf(got.UnfitHosts[0].Err).Type != "procedure" {
				t.Errorf("of the one that lacks it it says %+v", got.UnfitHosts)
			}
			var read harp.Preview
			if err := json.Unmarshal(must[[]byte](t)(json.Marshal(got)), &read); err != nil || read.UnfitHosts[0].Err.Error() != got.UnfitHosts[0].Err.Error() {
				t.Errorf("read back from JSON it is %+v, %v", read, err)
			}

			got = must[harp.Preview](t)(sys.caller.Target("web02,web01").Preview(t.Context(), "count", harp.Args{"to": "many"}))
			var field *harp.FieldError
			if got.Hosts != 2 || got.Unfit != 2 || len(got.UnfitHosts) != 2 || !errors.As(got.UnfitHosts[1].Err, &field) || field.Field != "args.to" {
				t.Errorf("of arguments that do not fit it says %+v", got)
			}

			got = must[harp.Preview](t)(sys.caller.Target("db*,web01").Preview(t.Context(), "count", harp.Pos(3)))
			if got.Hosts != 701 || got.Away != 700 || got.Unfit != 0 || len(got.AwayHosts) != 100 || got.AwayHosts[99] != "db099" || !slices.IsSorted(got.AwayHosts) {
				t.Errorf("of hosts that are away it says %+v", got)
			}
			if got := must[harp.Preview](t)(sys.caller.Target("web04").Preview(t.Context(), "reboot", nil)); !got.Dangerous {
				t.Errorf("of a dangerous procedure it says %+v", got)
			}
			steps := []harp.Step{{Procedure: "count", Args: harp.Args{"to": 3}}, {Procedure: "reboot"}}
			if got := must[harp.Preview](t)(sys.caller.Target("web04").PreviewChain(t.Context(), steps)); !got.Dangerous || got.Unfit != 0 {
				t.Errorf("of a chain with a dangerous step it says %+v", got)
			}
			if got := must[harp.Preview](t)(sys.caller.Target("*").Preview(t.Context(), "nothing", nil)); got.Unfit != 4 || len(got.UnfitHosts) != 4 {
				t.Errorf("of a procedure that nobody has said to have it says %+v", got)
			}
			testPreviewRefuses(t, sys)
		})
	}
}

// A preview is of what will be submitted: it says why that would be refused, and what it is confirmed to is no other request
// and has no other hosts.
func TestPreviewIsOfTheRequest(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		ctx := t.Context()
		sys.webs(3)
		sys.agent("db01", greeter)
		webs := sys.caller.Target("web*")
		for name, c := range map[string]struct {
			target string
			opts   []harp.Option
			want   error
			text   string
		}{
			"good":       {"web*", []harp.Option{harp.MaxHosts(3), harp.Subset("2"), harp.Rolling("1", "50%")}, nil, ""},
			"max hosts":  {"web*", []harp.Option{harp.MaxHosts(2)}, harp.ErrRefused, "selects 3 hosts, at most 2"},
			"parallel":   {"web*", []harp.Option{harp.Parallel(1001)}, harp.ErrRefused, "limits.batch_parallel"},
			"subset":     {"web*", []harp.Option{harp.Subset("4")}, harp.ErrInvalid, "subset"},
			"waves":      {"web*", []harp.Option{harp.Rolling("2", "10%")}, harp.ErrInvalid, "do not rise"},
			"unfit":      {"*", nil, harp.ErrNotFound, "1 host, db01"},
			"left out":   {"*", []harp.Option{harp.WhenUnfit(harp.SkipHost)}, nil, ""},
			"no dry run": {"web*", []harp.Option{harp.DryRun(), harp.Drift("base")}, harp.ErrInvalid, "has no dry run"},
			"queue":      {"web*", []harp.Option{harp.Queue(harp.Args{"q": strings.Repeat("q", 1010)}), harp.QueuePerHost()}, harp.ErrInvalid, "no room for the name of host web01"},
			"confirmed":  {"web*", []harp.Option{harp.Confirmed("d")}, harp.ErrConflict, "not the digest of a preview"},
		} {
			got := must[harp.Preview](t)(sys.caller.Target(c.target).Preview(ctx, "host.name", nil, c.opts...))
			if err := got.Refusal.Err(); !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", name, err)
			}
		}
		long := sys.caller.Target("db01" + strings.Repeat(",web01,web02", 700))
		if got := must[harp.Preview](t)(long.Preview(ctx, "host.name", nil)); got.Hosts != 3 || got.Unfit != 1 {
			t.Errorf("of a long list it says %+v", got)
		}
		steps := []harp.Step{{Procedure: "host.name"}, {Procedure: "nothing"}}
		if got := must[harp.Preview](t)(webs.PreviewChain(ctx, steps)); got.Unfit != 3 || !errors.Is(got.Refusal.Err(), harp.ErrNotFound) {
			t.Errorf("of a chain it says %+v", got)
		}

		id := harp.NewID()
		if _, err := webs.Call(ctx, "host.name", nil, harp.JobID(id), harp.Confirmed("3-d-d")); !errors.Is(err, harp.ErrConflict) || strings.Contains(err.Error(), id) {
			t.Errorf("of a batch that is not there it says %v", err)
		}
		asked := must[harp.Preview](t)(webs.Preview(ctx, "hello", harp.Args{"name": "ada"}))
		sure := harp.Confirmed(asked.Digest)
		for name, call := range map[string]func() (*harp.Batch, error){
			"arguments": func() (*harp.Batch, error) { return webs.Call(ctx, "hello", harp.Args{"name": "eve"}, sure) },
			"procedure": func() (*harp.Batch, error) { return webs.Call(ctx, "host.name", nil, sure) },
			"subset": func() (*harp.Batch, error) {
				return webs.Call(ctx, "hello", harp.Args{"name": "ada"}, sure, harp.Subset("1"))
			},
			"dry run": func() (*harp.Batch, error) {
				return webs.Call(ctx, "hello", harp.Args{"name": "ada"}, sure, harp.DryRun())
			},
		} {
			if _, err := call(); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "another request was confirmed") {
				t.Errorf("with another %s: %v", name, err)
			}
		}
		sys.agent("web04", greeter)
		if _, err := webs.Call(ctx, "hello", harp.Args{"name": "ada"}, sure); !errors.Is(err, harp.ErrConflict) || !strings.Contains(err.Error(), "4, where there were 3") {
			t.Errorf("with a host more: %v", err)
		}
		if all := allOf(t, sys.caller.Batches(ctx, harp.BatchFilter{})); len(all) > 0 {
			t.Errorf("stored are %+v", all)
		}
		asked = must[harp.Preview](t)(webs.Preview(ctx, "hello", harp.Args{"name": "ada"}))
		b := must[*harp.Batch](t)(webs.Call(ctx, "hello", harp.Args{"name": "ada"}, harp.Confirmed(asked.Digest), harp.Parallel(1)))
		ended(t, b, harp.BatchSucceeded, "")
	})
}

func testPreviewRefuses(t *testing.T, sys *system) {
	for _, bad := range []struct {
		target, procedure string
		args              any
		is                error
		field             string
	}{
		{"", "count", nil, harp.ErrInvalid, "target"},
		{"web01 web02", "count", nil, harp.ErrInvalid, "target"},
		{"web01", "", nil, harp.ErrInvalid, "procedure"},
		{"web01", strings.Repeat("p", 129), nil, harp.ErrInvalid, "procedure"},
		{"web01", "count", 7, harp.ErrInvalid, "args"},
		{"web01", "count", harp.Args{"x": make([]byte, harp.MaxArgs)}, harp.ErrInvalid, "args"},
		{"web99", "count", nil, harp.ErrNotFound, ""},
		{"nobody*", "count", nil, harp.ErrNotFound, ""},
	} {
		_, err := sys.caller.Target(bad.target).Preview(t.Context(), bad.procedure, bad.args)
		if f := harp.FailureOf(err); !errors.Is(err, bad.is) || f.Field != bad.field {
			t.Errorf("%s of %q gives %v", bad.procedure, bad.target, err)
		}
	}
	if _, err := sys.caller.Target("*").Preview(t.Context(), "count", nil, harp.Priority(1000)); harp.FailureOf(err).Field != "priority" {
		t.Errorf("an option that cannot be gives %v", err)
	}
}
