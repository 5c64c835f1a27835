package command

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent/internal/proc"
	"github.com/harpcaller/harp/agent/internal/supervisor"
)

func TestOutcomeOfSuccess(t *testing.T) {
	object, err := harp.NewValue(map[string]any{"pid": 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		end  supervisor.End
		want any
	}{
		{supervisor.End{OK: true, From: "exit-code", Status: proc.Status{Exit: 2}}, int64(2)},
		{supervisor.End{OK: true, From: "stdout", Result: []byte("a\nb")}, "a\nb"},
		{supervisor.End{OK: true, From: "stdout"}, ""},
		{supervisor.End{OK: true, From: "file", Result: []byte{0xff, 0}}, []byte{0xff, 0}},
		{supervisor.End{OK: true, From: "stdout-last-json", Result: []byte(`{"pid": 5}`)}, object},
	} {
		if got, err := Outcome(test.end); err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%+v gives %#v, %v; want %#v", test.end, got, err, test.want)
		}
	}
}

func TestOutcomeOfFailure(t *testing.T) {
	stop := func(cause string) *supervisor.Stop { return &supervisor.Stop{Cause: cause, Limit: 5 * time.Second} }
	for _, test := range []struct {
		end     supervisor.End
		kind    string
		code    int
		message string
	}{
		{supervisor.End{Status: proc.Status{Exit: 3}, LastError: "no such file\x1b[31m \xff"}, TypeExit, 3, "exit code 3: no such file [31m \uFFFD"},
		{supervisor.End{Status: proc.Status{Exit: -1, Signal: "SIGKILL", OutOfMemory: true}}, TypeSignal, 137, "ended by SIGKILL, killed because it took more than memory_max"},
		{supervisor.End{Status: proc.Status{Exit: 1, Killed: 1}, OutputOpen: true}, TypeExit, 1, "exit code 1, 1 process had to be killed, its output was still open"},
		{supervisor.End{Status: proc.Status{Exit: -1, Signal: "SIGSEGV", Core: true}}, TypeSignal, 139, "ended by SIGSEGV (core dumped)"},
		{supervisor.End{Status: proc.Status{Exit: -1, Signal: "SIGNONE"}}, TypeSignal, 128, "ended by SIGNONE"},
		{supervisor.End{Status: proc.Status{Exit: -1, Signal: "SIGTERM"}, Stopped: stop("cancel")}, TypeCancelled, 143, "ended by SIGTERM"},
		{supervisor.End{Status: proc.Status{Exit: 0}, Stopped: stop("cancel")}, TypeCancelled, 143, "exit code 0"},
		{supervisor.End{Status: proc.Status{Exit: -1, Signal: "SIGKILL", Killed: 3}, Stopped: stop("timeout"), LastError: "busy"}, TypeTimeout, 124, "ended by SIGKILL, 3 processes had to be killed: busy"},
		{supervisor.End{Status: proc.Status{Exit: 9}, Stopped: stop("max_exec_time")}, TypeTimeout, 124, "exit code 9"},
		{supervisor.End{OK: true, From: "stdout-last-json", ResultErr: "not_json"}, TypeNoResult, 0, "exit code 0, but the last line that it printed is no JSON"},
		{supervisor.End{OK: true, From: "stdout", ResultErr: "too_large"}, TypeNoResult, 0, "exit code 0, but its result is larger than result.max"},
		{supervisor.End{OK: true, From: "file", ResultErr: "new"}, TypeNoResult, 0, "exit code 0, but it left no result"},
		{supervisor.End{OK: true, From: "stdout-last-json", Result: []byte("99999999999999999999")}, TypeNoResult, 0, "exit code 0, but its result is no value: integer"},
	} {
		v, err := Outcome(test.end)
		var got *harp.RemoteError
		if !errors.As(err, &got) || v != nil || got.Type != test.kind || *got.ExitCode != test.code || !strings.HasPrefix(got.Message, test.message) {
			t.Errorf("%+v gives %v, %v\nwant %s: %s", test.end, v, err, test.kind, test.message)
			continue
		}
		var data struct {
			ExitCode int    `json:"exit_code"`
			Killed   int    `json:"killed"`
			Signal   string `json:"signal"`
		}
		if err := got.Data.Decode(&data); err != nil || data.ExitCode != test.end.Exit || data.Killed != test.end.Killed || data.Signal != test.end.Signal {
			t.Errorf("the data of %s is %s, %v", test.message, got.Data, err)
		}
	}
}

func TestOutcomeOfADeadSupervisorIsUnknown(t *testing.T) {
	if v, err := Outcome(supervisor.End{Gone: true, OK: true, From: "exit-code"}); !errors.Is(err, harp.ErrLost) || v != nil {
		t.Errorf("%v, %v", v, err)
	}
}
