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
// target selects. The question is the verb, and on how many. Errors: as ask; as the library.
func (c *cli) askForSeveral(ctx context.Context, caller *harp.Caller, text string, sure bool, verb, nothing string) error {
	if sure || !c.inTerminal || !c.errTerminal {
		return nil
	}
	n, err := countSelected(ctx, caller, text)
	switch {
	case err != nil:
		return noHost(ctx, caller, err, text)
	case n < 2:
		return nil
	}
	return c.ask(ctx, fmt.Sprintf("%s %d hosts?", verb, n), nothing)
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
