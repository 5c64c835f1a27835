package target

import (
	"errors"
	"fmt"
	"strings"
)

// SyntaxError says where a text is not a target, and what could stand there.
type SyntaxError struct {
	Offset int    // in bytes from the beginning of the text
	Found  string // the word at that place; empty at the end, and where a limit is passed
	Want   string // what was expected in its place, in words or as one would write it
}

// Error returns the place, what was found there and what was expected.
func (e *SyntaxError) Error() string {
	if e.Found == "" {
		return fmt.Sprintf("target: at byte %d: want %s", e.Offset, e.Want)
	}
	return fmt.Sprintf("target: at byte %d: found %q, want %s", e.Offset, e.Found, e.Want)
}

func syntaxError(text string, at int, want string) *SyntaxError {
	return &SyntaxError{Offset: at, Found: wordAt(text, at), Want: want}
}

func limitError(at int, format string, args ...any) *SyntaxError {
	return &SyntaxError{Offset: at, Want: fmt.Sprintf(format, args...)}
}

// GroupError says which group of a target could not be used, and why. Err is
// [ErrGroupCycle], [ErrTooDeep], a [SyntaxError] or [GroupError] of the group's own text,
// or what the function given to [NewGroups] returned.
type GroupError struct {
	Name   string
	Offset int // of the group's name in the text that asks for it
	Err    error
}

// Error names the place and the group and says why.
func (e *GroupError) Error() string {
	why := strings.TrimPrefix(e.Err.Error(), "target: ")
	return fmt.Sprintf("target: at byte %d: group %q: %s", e.Offset, e.Name, why)
}

// Unwrap returns why the group could not be used.
func (e *GroupError) Unwrap() error { return e.Err }

var (
	// ErrNoGroup is why a group cannot be used where [Expr.Compile] was given no groups.
	ErrNoGroup = errors.New("there are no groups here")
	// ErrGroupCycle is why a group that asks for itself, by way of others too, cannot be used.
	ErrGroupCycle = errors.New("asks for itself")
	// ErrTooDeep is why a group within too many others, or with them too many
	// parentheses, cannot be used.
	ErrTooDeep = errors.New("too many groups and parentheses within one another")
)
