package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
)

// givenBeside are the arguments that each command with flags that take a value needs before these are looked at.
var givenBeside = map[string]string{
	"agent": "--config /none --check-config", "agent journal check": "", "agent journal repair": "",
	"backup": "/none/x", "batch follow": firstID, "batch hosts": firstID, "batch ls": "", "batch pause": firstID, "batch results": firstID, "batch retry": firstID,
	"bench": "demo1 count to=3 -n 1 -y", "call": "demo1 count to=3 -y", "ctx add": "p --addr a:1 --cert /none --key /none --ca /none",
	"batch resume": firstID, "dev": "", "dispatcher": "--config /none --check-config", "drift ls": "", "event follow": "--no-wait", "event ls": "", "exec": "demo1 uname",
	"host pause": "demo1 -y", "id": "", "job cancel": firstID, "job follow": firstID, "job force-lost": firstID + " --reason x", "job get": firstID, "job logs": firstID,
	"job ls": "", "job retry": firstID, "job wait": firstID, "logs": firstID, "maint add": "w --target demo1 --from now --for 1h", "maint held": "", "maint on": "-y", "maint spans": "w",
	"maint why": "demo1", "notify add": "n --on job.failed --webhook https://example.org --secret s", "notify pause": "n", "prune": "--older-than 1h", "ps": "",
	"queue pause": "a=1", "queue set": "a=1 --concurrency 1", "restore": "/none/x --dir /none/y", "retain set": "r --keep 1h", "run": "demo* count to=3 -y",
	"schedule add": "s demo1 count to=3 --every 1h", "schedule apply": "-f /none", "schedule backfill": "s --from 2027-03-01 --to 2027-03-08", "schedule export": "", "schedule history": "s", "schedule import crontab": "/none --target demo1",
	"schedule next": "s", "schedule pause": "s", "schedule run": "s", "schedule skip": "s", "target explain": "demo1",
}

// withoutSystem are the commands that would begin what a test cannot have, if a flag of theirs is good after all.
var withoutSystem = []string{"dev --dir", "dev --listen", "event follow --after", "event follow --type", "event ls --after", "event ls --type", "event ls --host", "event follow --host", "event ls --since", "event follow --since"}

// namedField is what an error calls wrong.
var namedField = regexp.MustCompile(`invalid ([^ :]+):`)

// A flag with a bad value is refused by its name, as it was typed, and in plain words: not by a field of the API or of Go.
func TestEachFlagIsNamedInItsErrors(t *testing.T) {
	t.Parallel()
	for _, cmd := range leaves(commandOf(t, "")) {
		words := strings.TrimPrefix(cmd.CommandPath(), "harp ")
		beside, known := givenBeside[words]
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Value.Type() == "bool" || slices.Contains(withoutSystem, words+" --"+flag.Name) {
				return
			}
			if !known {
				t.Errorf("%s: this test does not know with which arguments to try --%s", words, flag.Name)
				return
			}
			for _, bad := range []string{"\xff", "-1"} {
				args := append(strings.Fields(words), "--"+flag.Name+"="+bad)
				args = append(args, strings.Fields(beside)...)
				f := several(t)
				f.every = true
				got := runFake(t, t.Context(), f, nil, args...)
				for _, m := range namedField.FindAllStringSubmatch(got.stderr, -1) {
					name, isFlag := strings.CutPrefix(m[1], "--")
					typed := slices.Contains(args, m[1]) || name == "file" // which is -f, or an argument
					if !typed && (!isFlag || name != flag.Name) {
						t.Errorf("%q: %s", args, got.stderr)
					}
				}
				if strings.Contains(got.stderr, "strconv") || strings.Contains(got.stderr, "invalid argument") {
					t.Errorf("%q: %s", args, got.stderr)
				}
			}
		})
	}
}

// What is asked for only to see starts, cancels and changes nothing, whatever the command: harp batch retry took --dry-run, did not say so, and called
// the hosts again.
func TestADryRunOfARetryRan(t *testing.T) {
	tried := 0
	for _, cmd := range leaves(commandOf(t, "")) {
		words := strings.TrimPrefix(cmd.CommandPath(), "harp ")
		beside, known := givenBeside[words]
		if !known || cmd.Flags().Lookup("dry-run") == nil {
			continue
		}
		tried++
		f := ofEachNoun(t)
		f.every = true
		f.batches = batchOf(firstID, 2, "demo1")
		if words == "batch retry" {
			first, err := harp.NewBatchRequest("demo*", "count", harp.Args{"to": 3}, harp.JobID(firstID))
			if err != nil {
				t.Fatal(err)
			}
			f.feed.requests = map[string]harp.Request{firstID: first}
		}
		args := append(strings.Fields(words), strings.Fields(beside)...)
		got := runFake(t, t.Context(), f, nil, append(args, "--dry-run")...)
		for _, req := range f.submitted {
			if !req.DryRun {
				t.Errorf("%q called %s: %+v", args, req.Procedure, got)
			}
		}
		if len(f.cancelled) > 0 || len(f.batches.changes) > 0 {
			t.Errorf("%q cancelled %q and changed %+v", args, f.cancelled, f.batches.changes)
		}
		if words == "batch retry" && (got.code != exitOK || !strings.Contains(got.stdout, "would run")) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if tried < 8 {
		t.Errorf("%d commands were tried", tried)
	}
}

// leaves are the commands that do something.
func leaves(cmd *cobra.Command) (all []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		all = append(all, leaves(sub)...)
	}
	if cmd.RunE != nil && cmd.HasParent() {
		all = append(all, cmd)
	}
	return all
}

// What cobra and pflag say in their own words is said in harp's.
func TestFlagErrorsAreInPlainWords(t *testing.T) {
	for args, want := range map[string]string{
		"job ls --limit nope":                                                     "invalid --limit: must be a whole number, is \"nope\"\n",
		"job ls -n 99999999999999999999":                                          "invalid --limit: 99999999999999999999 is too large\n",
		"job cancel last --now=soon":                                              "invalid --now: must be true or false, is \"soon\"\n",
		"call demo1 count --silence-timeout 5":                                    "invalid --silence-timeout: must be a duration such as 5s",
		"agent journal check --config a --dir b":                                  "--config cannot be combined with --dir\n",
		"job follow last --since 0 --tail 5":                                      "--since cannot be combined with --tail\n",
		"schedule add s d p --every 1h --schedule-label nope":                     "invalid --schedule-label: \"nope\" is not key=value",
		"event ls --job zzz":                                                      "invalid --job: zzz is not a job ID",
		"job ls --batch zzz":                                                      "invalid --batch: zzz is not a batch ID",
		"notify add n --on job.failed --webhook https://example.org --mail a@b.c": "invalid --webhook: cannot be combined with --mail",
		"ctx show":      "harp: no current context; see harp ctx use\nSee: harp doctor\n",
		"dev --hosts 0": "invalid --hosts: must be from 1 to 100",
	} {
		if got := runFake(t, t.Context(), several(t), nil, strings.Fields(args)...); got.code != exitUsage || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: exit %d, said %q, want %q", args, got.code, got.stderr, want)
		}
	}
}

// What is wrong with the command that harp exec is to run is called by what was typed, whoever refuses it.
func TestExecNamesItsCommand(t *testing.T) {
	here := ended(t, nil)
	here.submitErr = &harp.FieldError{Field: "args.argv[0]", Message: "is not allowed"}
	agent := ended(t, harp.Failure{Code: "rejected_invalid", Field: "args.argv[0]", Message: "is not allowed"}.Err())
	for name, f := range map[string]*fake{"the dispatcher": here, "the agent": agent} {
		f.procedures = append(f.procedures, execDoc())
		if got := runFake(t, t.Context(), f, nil, "exec", "demo1", "id"); got.code != exitUsage || !strings.Contains(got.stderr, "invalid COMMAND: is not allowed") {
			t.Errorf("%s refuses: got %+v", name, got)
		}
	}
}
