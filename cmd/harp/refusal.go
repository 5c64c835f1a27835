package main

import (
	"errors"
	"strings"

	"github.com/harpcaller/harp"
)

// refusals are words for the patterns that every parameter of a command has, whoever
// wrote it, by how the message that names the pattern begins.
var refusals = []struct{ begins, words string }{
	{`must match ^[^\x00]*$, `, "must not contain a NUL character, "},
	{`must match ^(?:[^-\x00][^\x00]*)?$, `, "must not begin with -, which the command might take for an option, nor contain a NUL character, "},
	{`must match ^(?:/(?:\.|[^/.\x00]`, "must be an absolute path without .., "},
}

// inWords says in words what an argument must be, where the error has only a pattern.
func inWords(err error) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) {
		return err
	}
	for _, r := range refusals {
		if strings.HasPrefix(wrong.Message, r.begins) {
			return &harp.FieldError{Field: wrong.Field, Message: r.words + shownValue(wrong.Message)}
		}
	}
	under, found := strings.CutPrefix(wrong.Message, "must match ^/")
	under, _, isPath := strings.Cut(under, `(?:/(?:\.|[^/.\x00]`)
	if found && isPath {
		under = strings.ReplaceAll(under, `\`, "")
		return &harp.FieldError{Field: wrong.Field, Message: "must be a path under /" + under + ", without .., " + shownValue(wrong.Message)}
	}
	return err
}

// shownValue is what a message says of the value, behind the pattern.
func shownValue(message string) string {
	for _, mark := range []string{`, is "`, ", is ***"} {
		if at := strings.Index(message, mark); at >= 0 {
			return message[at+len(", "):]
		}
	}
	return "and is not"
}
