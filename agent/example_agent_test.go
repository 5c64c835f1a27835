package agent_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/agent"
	"github.com/harpcaller/harp/transport"
)

// SearchArgs are the arguments of search; their json tags are the parameters.
type SearchArgs struct {
	File string `json:"file" jsonschema:"the file to look into"`
	Word string `json:"word" jsonschema:"what a line must contain"`
	Most int    `json:"most,omitempty" jsonschema:"stop after so many lines; 0: never"`
}

// Line is a record of search.
type Line struct {
	Number int    `json:"number"`
	Text   string `json:"text"`
}

// Found is the result of search.
type Found struct {
	Lines int `json:"lines"`
}

// Search is declared in a package that its callers import, too.
var Search = harp.NewStreamProc[SearchArgs, Line, Found]("log.search", "Search a file for lines with a word")

// search is what the host does. The context ends when the job is cancelled or a limit
// is exceeded; then emit returns an error.
func search(ctx context.Context, in SearchArgs, emit func(Line) error) (Found, error) {
	f, err := os.Open(in.File)
	if err != nil {
		return Found{}, agent.Errorf("not_found", map[string]string{"file": in.File}, "%w", err)
	}
	defer f.Close()
	return searchIn(f, in, emit)
}

func searchIn(r io.Reader, in SearchArgs, emit func(Line) error) (Found, error) {
	var found Found
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		if !strings.Contains(lines.Text(), in.Word) {
			continue
		}
		if err := emit(Line{Number: n, Text: lines.Text()}); err != nil {
			return found, err
		}
		if found.Lines++; found.Lines == in.Most {
			break
		}
	}
	return found, lines.Err()
}

// A whole agent: a program that runs on a host, under a service manager. It offers one
// procedure, connects to its dispatcher and connects again, for ever.
func Example_program() {
	tc, err := transport.LoadTLS("/etc/harp/agent.crt", "/etc/harp/agent.key", "/etc/harp/ca.crt")
	if err != nil {
		fmt.Println("there is no certificate")
		return
	}
	a := agent.New(agent.Config{
		Name:   "web01",            // as in the certificate
		Dir:    "/var/lib/myagent", // its journal: what it started, and what nobody has taken yet
		TLS:    tc,
		Labels: map[string]string{"role": "web"},
	})
	agent.HandleStream(a, Search, search, agent.Idempotent())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := a.Connect(ctx, "harp.example:7440"); err != nil {
		fmt.Println(err) // the configuration, or a journal that cannot be opened
	}
	// Output: there is no certificate
}
