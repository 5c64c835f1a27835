package main

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/harpcaller/harp"
)

// commandOf finds a command of harp by its words.
func commandOf(t *testing.T, words string) *cobra.Command {
	t.Helper()
	root := newCLI(strings.NewReader(""), io.Discard, io.Discard, func(string) string { return "" }).rootCommand()
	cmd, _, err := root.Find(strings.Fields(words))
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// fieldsIn are the names of the fields of a struct, as errors call them, with those of structs in it.
func fieldsIn(of reflect.Type, before string) (names []string) {
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		names = append(names, before+name)
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() == of.PkgPath() {
			names = append(names, fieldsIn(inner, before+name+".")...)
		}
	}
	return names
}

// Each field that a command can set is called by its flag; those that are left out have none.
func TestEachFieldHasItsFlag(t *testing.T) {
	for words, c := range map[string]struct {
		of   any
		less []string // fields without a flag, and all that is in them
	}{
		"call": {harp.CallOptions{}, []string{"job_id", "trace_parent", "retry.max_backoff", "batch"}},
		"run":  {harp.BatchOptions{}, []string{"confirmed", "then"}},
		"schedule add": {harp.Schedule{}, []string{
			"name", "request.id", "request.host", "request.target", "request.procedure", "request.args", "request.start_after", "request.start_before", "request.trace_parent", "request.needs",
			"request.retry_of", "request.retry.max_backoff", "request.batch.then", "request.idempotency_key", "request.idempotency_ttl", "request.batch.confirmed", "request.batch.probe", "request.list", "after.on",
		}},
		"maint add":  {harp.Window{}, []string{"name"}},
		"notify add": {harp.Notification{}, []string{"name"}},
		"retain set": {harp.RetentionRule{}, []string{"name"}},
	} {
		cmd := commandOf(t, words)
		for _, name := range fieldsIn(reflect.TypeOf(c.of), "") {
			bare := slices.Contains(c.less, name)
			below := slices.ContainsFunc(c.less, func(less string) bool { return strings.HasPrefix(name, less+".") })
			outer := slices.ContainsFunc(fieldsIn(reflect.TypeOf(c.of), ""), func(other string) bool { return strings.HasPrefix(other, name+".") })
			switch flag := flagOf(cmd, name); {
			case bare && flag != nil:
				t.Errorf("%s: %s has the flag --%s", words, name, flag.Name)
			case !bare && !below && !outer && flag == nil:
				t.Errorf("%s: %s has no flag", words, name)
			}
		}
	}
}

// An error calls a field by the flag with which it was given, and a field that has no flag as it is.
func TestErrorsNameFlags(t *testing.T) {
	f := several(t)
	f.every = true
	for args, want := range map[string]string{
		"call demo1 count to=3 --priority 101":                               "invalid --priority: must be from -100 to 100",
		"call demo1 count to=3 --retry soon":                                 "invalid --retry: must be one or more of",
		"call demo1 count to=3 --retry lost --attempts 200":                  "invalid --attempts: must be from 1 to 100",
		"call demo1 count to=3 --id x":                                       "invalid --id: must be a UUIDv7",
		"call demo1 count to=3 --start-after 2h --start-before 1h":           "invalid --start-before: is before",
		"call demo1 count to=3 --idempotency-key k --idempotency-ttl 100ms":  "invalid --idempotency-ttl: must be from",
		"call demo1 count to=three":                                          "invalid args.to: ",
		"run demo* count to=3 -y --stop-after 200%":                          "invalid --stop-after: ",
		"run demo* count to=3 -y --rolling 5,1":                              "invalid --rolling: ",
		"run demo* count to=3 -y --subset 0":                                 "invalid --subset: ",
		"run demo* count to=3 -y --parallel 0":                               "invalid --parallel: must not be empty or zero",
		"run demo* count to=3 -y --reboot-wait 1m":                           "invalid --reboot-wait: only applies to chains",
		"schedule add s demo1 count to=3 --at 2020-01-01T00:00":              "invalid --at: ",
		"schedule add s demo1 count to=3 --cron @daily --catch-up-most 2000": "invalid --catch-up-most: ",
		"schedule add s demo1 count to=3 --every 1h --parallel 0":            "invalid --parallel: must",
		"maint add w --target * --from now --for 1h --exempt \xff":           "invalid --exempt: ",
		"notify add n --on no*pe --webhook https://example.org --secret s":   "invalid --on: ",
		"notify add n --on job.failed --webhook https://example.org":         "invalid --secret: ",
		"retain set r --keep 1h --state running":                             "invalid --state: ",
		"prune":                                                              "missing --older-than",
		"notify add n":                                                       "missing --on",
		"queue set db=main":                                                  "missing --concurrency",
		"ctx add p --addr a:1 --cert /none --key /none --ca /none":           "invalid --cert: stat /none",
		"job show zzz":        "invalid id: ",
		"job ls --state nope": "invalid --state: nope is not one of",
	} {
		if got := runFake(t, t.Context(), f, nil, strings.Fields(args)...); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d, said %q, want %q", args, got.code, got.stderr, want)
		}
	}
	if got := runFake(t, t.Context(), f, nil, "run", "demo*", "count", "to=3", "--stop-after", "200%", "-y", "-o", "json"); !strings.Contains(got.stdout, `"field":"stop_after"`) {
		t.Errorf("JSON has the field as the API calls it; got %s", got.stdout)
	}
}
