package dispatcher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/internal/wire"
)

// What an agent finds wrong with its files is shown with its host as long as it is wrong, whether
// it was so before the agent connected or came later.
func TestBadProcedureFilesAreProblemsOfTheHost(t *testing.T) {
	everyWiring(t, func(t *testing.T, sys *system) {
		dir := t.TempDir()
		var offers *agent.Agent
		load := func(text string) {
			if err := os.WriteFile(filepath.Join(dir, "p.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := offers.Load(dir); (err != nil) != strings.Contains(text, "commnd") {
				t.Fatal(err)
			}
		}
		const good, bad = "greet: {summary: Greet, command: [/bin/echo, hello]}\n", "greet: {summary: Greet, commnd: [/bin/echo, hello]}\n"
		sys.agent("web01", func(a *agent.Agent) { offers = a; load(bad) })
		sys.hasProblem(harp.ProblemProcedures, "p.yaml:1: greet.commnd")
		load(good)
		sys.hasProblem("", "")
		load(bad)
		sys.hasProblem(harp.ProblemProcedures, "p.yaml:1: greet.commnd")
		if h, err := sys.caller.Hosts().Get(t.Context(), "web01"); err != nil || len(h.Facts) == 0 || len(h.Procedures) != 1 {
			t.Errorf("%+v, %v", h, err)
		}
	})
}

// hasProblem waits until web01 has a problem and no other, none if there is no code.
func (s *system) hasProblem(code, text string) {
	s.t.Helper()
	for {
		h, err := s.caller.Hosts().Get(s.t.Context(), "web01")
		if err != nil {
			s.t.Fatal(err)
		}
		if code == "" && len(h.Problems) == 0 || len(h.Problems) == 1 && h.Problems[0].Code == code && strings.Contains(h.Problems[0].Text, text) {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.t.Context().Done():
			s.t.Fatalf("the problems are %v", h.Problems)
		}
	}
}

// A second agent of a host's name that is refused is a problem of the host while it goes on.
func TestSecondAgentIsAProblemOfTheHost(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		first := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "first"))
		go first.answerProbes()
		if _, err := sys.newRawAgent(t.Context(), "clone"); err == nil {
			t.Fatal("the clone is let in")
		}
		sys.hasProblem(harp.ProblemDuplicate, "another agent with this name was refused")
		time.Sleep(time.Minute)
		sys.hasProblem("", "")
	})
}

// What an agent says is wrong is cut to what it may say.
func TestProblemsOfAnAgentAreBounded(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, sys *system) {
		a := must[*rawAgent](t)(sys.newRawAgent(t.Context(), "one"))
		var told wire.Facts
		for range 50 {
			told.Problems = append(told.Problems, harp.HostProblem{Code: strings.Repeat("c", 600), Text: strings.Repeat("t", 600)})
		}
		a.sendFrame(t, wire.TypeFacts, told)
		synctest.Wait()
		h := must[harp.HostStatus](t)(sys.caller.Hosts().Get(t.Context(), "web01"))
		if len(h.Problems) != wire.MaxProblems || len(h.Problems[0].Code) != wire.MaxProblemCode || len(h.Problems[0].Text) != wire.MaxProblemText {
			t.Errorf("%d problems: %+v", len(h.Problems), h.Problems)
		}
	})
}
