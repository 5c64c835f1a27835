package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/duration"
	"github.com/harpcaller/harp/internal/schema"
	"github.com/harpcaller/harp/target"
)

// maxInput is how much is read of a file or stdin as arguments; the library's own
// limit is 1 MiB of the encoded form.
const maxInput = 8 << 20

// arguments makes a call's arguments of the words behind the procedure's name, by
// what the procedure says it takes:
//
//	name=value    typed by the procedure's schema
//	name:=json    JSON, as it is
//	@file         a JSON object with several, or an array of positional ones
//	- or @-       the same from stdin
//
// A word goes before a file. They are checked here, before anything is sent.
func (c *cli) arguments(doc harp.ProcedureDoc, words []string) (any, error) {
	known, err := schema.Compile(doc)
	if err != nil {
		return nil, err
	}
	args, err := c.gather(words, known.Parse)
	if err == nil {
		err = known.CheckUnits(args)
	}
	if err != nil {
		return nil, unknownArgument(inWords(err), parameterNames(doc))
	}
	v, err := harp.NewValue(args)
	if err != nil {
		return nil, err
	}
	return v, unknownArgument(inWords(known.Check(v)), parameterNames(doc))
}

// unknownArgument adds to the error of an argument that there is not which may have been meant.
func unknownArgument(err error, known []string) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Message, "unknown argument") {
		return err
	}
	return hinted(err, strings.TrimPrefix(wrong.Field, "args."), known)
}

// gather reads words into a map, or into the array that stands alone in a file.
func (c *cli) gather(words []string, parse func(name, text string) (any, error)) (any, error) {
	named, base := map[string]any{}, map[string]any{}
	var list []any
	for _, word := range words {
		if file, ok := fileWord(word); ok {
			got, err := c.readArguments(file)
			if err != nil {
				return nil, err
			}
			switch got := got.(type) {
			case map[string]any:
				maps.Copy(base, got)
			case []any:
				list = got
			}
			continue
		}
		name, v, err := parseWord(word, parse)
		if err != nil {
			return nil, err
		}
		if _, twice := named[name]; twice {
			return nil, invalid("args."+name, "is given twice")
		}
		named[name] = v
	}
	maps.Copy(base, named)
	switch {
	case list != nil && len(base) > 0:
		return nil, invalid("args", "must be all named or all positional")
	case list != nil:
		return list, nil
	}
	return base, nil
}

// fileWord tells a word that names a file, "-" being stdin.
func fileWord(word string) (file string, ok bool) {
	if word == "-" {
		return word, true
	}
	return strings.CutPrefix(word, "@")
}

// readArguments reads a JSON object or array from a file or stdin.
func (c *cli) readArguments(file string) (any, error) {
	text, err := c.readInput(file)
	if err != nil {
		return nil, invalid("args", "%s", err)
	}
	got, err := parseJSON(text)
	if err != nil {
		return nil, invalid("args", "%s: %s", file, message(err))
	}
	switch got.(type) {
	case map[string]any, []any:
		return got, nil
	}
	return nil, invalid("args", "%s: must be a JSON object or array", file)
}

func (c *cli) readInput(file string) ([]byte, error) {
	in := c.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxInput)
	}
	return text, err
}

// parseWord reads name=value or name:=json.
func parseWord(word string, parse func(name, text string) (any, error)) (name string, v any, err error) {
	name, text, ok := strings.Cut(word, "=")
	if !ok || name == "" || name == ":" {
		return "", nil, invalid("args", "%s is not name=value, name:=json, @file or -", word)
	}
	if name, ok = strings.CutSuffix(name, ":"); ok {
		if v, err = parseJSON([]byte(text)); err != nil {
			return "", nil, invalid("args."+name, "must be JSON after :=") // what it is may be a secret
		}
		return name, v, nil
	}
	v, err = parse(name, text)
	return name, v, err
}

// parseJSON reads one JSON value; integers stay integers.
func parseJSON(text []byte) (any, error) {
	var v harp.Value
	if err := v.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return v.Any()
}

// message is what is wrong, without the field's name.
func message(err error) string {
	var wrong *harp.FieldError
	if errors.As(err, &wrong) {
		return wrong.Message
	}
	return err.Error()
}

// dictionary reads a queue's name: a JSON object, or words name=text and
// name:=json.
func dictionary(words []string) (map[string]any, error) {
	if len(words) == 1 && strings.HasPrefix(strings.TrimSpace(words[0]), "{") {
		got, err := parseJSON([]byte(words[0]))
		if err != nil {
			return nil, invalid("queue", "%s", message(err))
		}
		name, ok := got.(map[string]any)
		if !ok {
			return nil, invalid("queue", "must be a JSON object, or name=value")
		}
		return name, nil
	}
	name := map[string]any{}
	for _, word := range words {
		key, v, err := parseWord(word, func(_, text string) (any, error) { return text, nil })
		if err != nil {
			return nil, invalid("queue", "%q is neither a JSON object nor name=value", word)
		}
		if _, twice := name[key]; twice {
			return nil, invalid("queue", "%s is given twice", key)
		}
		name[key] = v
	}
	return name, nil
}

// anything reads JSON or, failing that, a text.
func anything(text string) any {
	if v, err := parseJSON([]byte(text)); err == nil {
		return v
	}
	return text
}

// limit is a flag for a duration that may also be none.
type limit time.Duration

// String returns the flag's value.
func (l *limit) String() string {
	switch time.Duration(*l) {
	case 0:
		return ""
	case harp.NoLimit:
		return "none"
	default:
		return duration.Format(time.Duration(*l))
	}
}

// Set reads the flag.
func (l *limit) Set(text string) error {
	if text == "none" {
		*l = limit(harp.NoLimit)
		return nil
	}
	d, err := duration.Parse(text)
	if err != nil || d <= 0 {
		return errors.New("must be " + duration.Expected + ", or none")
	}
	*l = limit(d)
	return nil
}

// Type names the flag's type in the help.
func (l *limit) Type() string { return "duration" }

// labels reads k=v words.
func labels(words []string) (map[string]string, error) {
	m := map[string]string{}
	for _, word := range words {
		k, v, ok := strings.Cut(word, "=")
		if !ok || k == "" {
			return nil, invalid("label", "%q is not key=value", word)
		}
		if _, twice := m[k]; twice {
			return nil, invalid("label", "%s is given twice", k)
		}
		m[k] = v
	}
	return m, nil
}

// checkPlainName refuses a pattern or a list where one name is asked for: it would select
// nothing, silently.
func checkPlainName(field, name string) error {
	if strings.ContainsAny(name, "*?[]{}, ") {
		return invalid(field, "must be one name, not a pattern or a list: %s", name)
	}
	return nil
}

// labelText is labels for people, sorted.
func labelText(m map[string]string) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, k+"="+m[k])
	}
	return strings.Join(words, ",")
}

// findProcedure asks what the host offers under this name. A host that has not
// said what it offers is asked by calling it. Errors: harp.ErrNotFound; harp.ErrInvalid for a target in the place of a host.
func findProcedure(ctx context.Context, caller *harp.Caller, host, name string) (harp.ProcedureDoc, error) {
	docs, err := caller.Hosts().Procedures(ctx, host)
	if errors.Is(err, harp.ErrNotFound) && target.QuoteName(host) != host {
		return harp.ProcedureDoc{}, invalid("host", "%s is a target, not the name of a host; all hosts of one are called by harp run", host)
	}
	if err != nil {
		return harp.ProcedureDoc{}, noHost(ctx, caller, err, host)
	}
	known := make([]string, len(docs))
	for i, doc := range docs {
		known[i] = doc.Name
	}
	for _, doc := range docs {
		if doc.Name == name {
			return doc, nil
		}
	}
	status, err := caller.Hosts().Get(ctx, host)
	if err != nil {
		return harp.ProcedureDoc{}, err
	}
	if status.LastHeard.IsZero() && !status.Online {
		return harp.ProcedureDoc{Name: name}, nil
	}
	return harp.ProcedureDoc{}, noProcedure(name, host, known)
}
