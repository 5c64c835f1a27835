package command

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/schema"
)

func mustExec(t *testing.T, p ExecPolicy) *Command {
	t.Helper()
	c, err := Exec(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := schema.Compile(c.Doc); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestExec(t *testing.T) {
	dir := t.TempDir()
	c := mustExec(t, ExecPolicy{User: "nobody", Commands: []string{"ls", "/bin/echo"}, Dirs: []string{"/usr", dir}, Env: []string{"LINES"}, MaxExecTime: time.Minute})
	if c.Doc.Name != ExecName || c.Doc.MaxExecTime != time.Minute || !slices.Contains(c.Doc.Traits, harp.TraitDangerous) {
		t.Errorf("it is described as %+v", c.Doc)
	}
	spec, err := prepare(t, c, harp.Pos([]string{"ls", "-l", "; rm x", "$(id)\n"}, "in\x00put", dir, map[string]string{"LINES": "5"}), false)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"ls", "-l", "; rm x", "$(id)\n"}; !slices.Equal(spec.Command.Argv, want) || string(spec.Stdin) != "in\x00put" ||
		spec.Command.Dir != dir || spec.Command.User != "nobody" || !slices.Contains(spec.Command.Env, "LINES=5") || spec.Grace != defaultGrace {
		t.Errorf("%+v", spec)
	}
	if spec, err = prepare(t, c, harp.Args{"argv": []string{"/bin/echo"}}, false); err != nil || spec.Command.Dir != "/usr" {
		t.Errorf("without cwd it runs in %q, %v", spec.Command.Dir, err)
	}
	longest := strings.Repeat("x", maxElement)
	spec, err = prepare(t, c, harp.Args{"argv": []string{"ls", longest}, "env": map[string]string{"LINES": longest[len("LINES="):]}}, false)
	if err != nil || spec.Command.Argv[1] != longest {
		t.Errorf("the longest that Linux takes: %v", err)
	}
	for _, test := range []struct {
		args  harp.Args
		field string
	}{
		{harp.Args{}, "args.argv"},
		{harp.Args{"argv": []string{}}, "args.argv"},
		{harp.Args{"argv": []string{""}}, "args.argv"},
		{harp.Args{"argv": "ls"}, "args.argv"},
		{harp.Args{"argv": []string{"cat"}}, "args.argv[0]"},
		{harp.Args{"argv": []string{"/usr/bin/ls"}}, "args.argv[0]"},
		{harp.Args{"argv": []string{"ls", "a\x00b"}}, "args.argv[1]"},
		{harp.Args{"argv": []string{"ls", strings.Repeat("é", maxElement/2+1)}}, "args.argv[1]"},
		{harp.Args{"argv": []string{"ls"}, "env": map[string]string{"LD_PRELOAD": "/x"}}, "args.env.LD_PRELOAD"},
		{harp.Args{"argv": []string{"ls"}, "env": map[string]string{"PATH": "/x"}}, "args.env.PATH"},
		{harp.Args{"argv": []string{"ls"}, "env": map[string]string{"LINES": longest[len("LINES"):]}}, "args.env.LINES"},
		{harp.Args{"argv": []string{"ls"}, "cwd": "/etc"}, "args.cwd"},
		{harp.Args{"argv": []string{"ls"}, "cwd": "/usr/../etc"}, "args.cwd"},
		{harp.Args{"argv": []string{"ls"}, "shell": true}, "args.shell"},
	} {
		if spec, err := prepare(t, c, test.args, false); fieldOf(err) != test.field {
			t.Errorf("%.80v: %q, %v; want %s", test.args, spec.Command.Argv, err, test.field)
		}
	}
}

func TestExecOfAnything(t *testing.T) {
	c := mustExec(t, ExecPolicy{})
	spec, err := prepare(t, c, harp.Pos([]string{"anything"}), false)
	if err != nil || spec.Command.Dir != "" || len(spec.Stdin) > 0 {
		t.Errorf("%+v, %v", spec, err)
	}
	for _, name := range []string{"./x", "a/b", "-x"} {
		if _, err := prepare(t, c, harp.Pos([]string{name}), false); fieldOf(err) != "args.argv[0]" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExecPolicyIsChecked(t *testing.T) {
	for _, test := range []struct {
		field  string
		policy ExecPolicy
	}{
		{"exec.env", ExecPolicy{Env: []string{"LINES", "LD_LIBRARY_PATH"}}},
		{"exec.env", ExecPolicy{Env: []string{"HARP_X"}}},
		{"exec.env", ExecPolicy{PassEnv: []string{"HARP_JOB"}}},
		{"exec.env", ExecPolicy{PassEnv: []string{"A B"}}},
		{"exec.dirs", ExecPolicy{Dirs: []string{"tmp"}}},
		{"exec.dirs", ExecPolicy{Dirs: []string{"/usr", "/usr/"}}},
		{"exec", ExecPolicy{Grace: -1}},
		{"exec", ExecPolicy{SilenceTimeout: -1}},
		{"exec", ExecPolicy{MaxExecTime: -1}},
	} {
		if _, err := Exec(test.policy); fieldOf(err) != test.field || !errors.Is(err, harp.ErrInvalid) {
			t.Errorf("%+v: want an error of %s, got %v", test.policy, test.field, err)
		}
	}
	if c, err := Exec(ExecPolicy{Grace: 1, SilenceTimeout: 2, MaxExecTime: 3, PassEnv: []string{"LD_LIBRARY_PATH"}}); err != nil || c.grace != 1 {
		t.Errorf("one that can be: %v", err)
	}
}

// TestExecOfAnEmptyListIsRefused: a list of the policy that is there and empty allows
// nothing by its words, so it is never taken for one that was left out, which allows all.
func TestExecOfAnEmptyListIsRefused(t *testing.T) {
	for field, p := range map[string]ExecPolicy{"exec.commands": {Commands: []string{}}, "exec.dirs": {Dirs: []string{}}} {
		_, err := Exec(p)
		var wrong *harp.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field || !strings.Contains(wrong.Message, "must not be empty: left out it allows any") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
