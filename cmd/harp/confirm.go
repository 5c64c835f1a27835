package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
)

// confirm asks once before a procedure that calls itself dangerous is called. Errors: as askSure.
func (c *cli) confirm(ctx context.Context, doc harp.ProcedureDoc, host string, sure bool) error {
	if sure || !slices.Contains(doc.Traits, harp.TraitDangerous) {
		return nil
	}
	return c.askSure(ctx, doc.Name+" is marked dangerous", "Call it on "+host+"?", "nothing was called")
}

// askSure asks whether something is to be done, having said why it asks. Errors: *abortedError,
// *detachedError, *unaskedError when there is nobody to ask.
func (c *cli) askSure(ctx context.Context, why, question, nothing string) error {
	if !c.inTerminal || !c.errTerminal {
		return &unaskedError{why}
	}
	return c.ask(ctx, why+". "+question, nothing)
}

// askForSeveral asks, where there is somebody to ask, before something is done to more than one of the hosts that a
// target selects, and returns these; nil where nobody was to be asked. The question is the verb, and on how many. Errors:
// as ask; as the library.
func (c *cli) askForSeveral(ctx context.Context, caller *harp.Caller, text string, sure bool, verb, nothing string) (hosts []string, err error) {
	if sure || !c.inTerminal || !c.errTerminal {
		return nil, nil
	}
	hosts, err = caller.Target(text).Hosts(ctx)
	switch {
	case err != nil:
		return nil, noHost(ctx, caller, err, text)
	case len(hosts) < 2:
		return hosts, nil
	}
	return hosts, c.ask(ctx, fmt.Sprintf("%s %d hosts?", verb, len(hosts)), nothing)
}

// changeHosts changes the hosts that a target selects, when somebody who can be asked agrees: then those that the
// question was about, and none that the target selects since. It returns how many. Errors: as askForSeveral; change's.
func (c *cli) changeHosts(ctx context.Context, caller *harp.Caller, text string, sure bool, verb, nothing string, change func(text string) (int, error)) (n int, err error) {
	hosts, err := c.askForSeveral(ctx, caller, text, sure, verb, nothing)
	if err != nil {
		return 0, err
	}
	targets := listTargets(hosts)
	if hosts == nil {
		targets = []string{text}
	}
	for _, some := range targets {
		did, err := change(some)
		if err != nil && n > 0 {
			return n, fmt.Errorf("%d of %d hosts were changed before it failed: %w", n, len(hosts), err)
		}
		if n += did; err != nil {
			return n, noHost(ctx, caller, err, text)
		}
	}
	return n, nil
}

// ask asks a person, who is there, whether to go on. Errors: *abortedError when the answer is
// not yes, *detachedError when there is none; both say what did not happen. What was typed before it is
// shown is no answer to it.
func (c *cli) ask(ctx context.Context, question, nothing string) error {
	dropTyped(c.stdin)
	fmt.Fprint(c.stderr, safeLine(question+" [y/N] ")) //nolint:errcheck // then there is no answer either
	switch answer, err := c.readLine(ctx); {
	case err != nil:
		return &detachedError{nothing: nothing}
	case slices.Contains([]string{"y", "yes"}, strings.ToLower(answer)):
		return nil
	}
	return &abortedError{nothing}
}

// unaskedError says that nobody can be asked whether something is to be done.
type unaskedError struct{ why string }

func (e *unaskedError) Error() string {
	return e.why + ", and there is no terminal to ask on; pass -y"
}

// Is reports whether target is harp.ErrInvalid, whose exit code it has.
func (e *unaskedError) Is(target error) bool { return target == harp.ErrInvalid }

// abortedError says that the user said no.
type abortedError struct{ nothing string } // what did not happen

func (e *abortedError) Error() string { return "aborted; " + e.nothing }

// Is reports whether target is harp.ErrInvalid, whose exit code it has.
func (e *abortedError) Is(target error) bool { return target == harp.ErrInvalid }

// readLine reads one line of stdin, until it is interrupted. Errors: context.Canceled.
func (c *cli) readLine(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	// Nothing can end a read of a terminal: when interrupted, the program ends first.
	go func() {
		text, _ := bufio.NewReader(io.LimitReader(c.stdin, maxAnswer)).ReadString('\n') // none is no yes
		line <- strings.TrimSpace(text)
	}()
	select {
	case text := <-line:
		return text, nil
	case <-ctx.Done():
		return "", context.Canceled
	}
}

// maxAnswer is how much of a line is read as an answer.
const maxAnswer = 1 << 10
