package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/harpcaller/harp"
)

// fieldFlags are the flags of fields that have another name than their flag. Of several it is the one that
// was given.
var fieldFlags = map[string][]string{
	"after.schedule":     {"after"},
	"args.cwd":           {"cwd"}, // of harp exec
	"args.env":           {"env"},
	"args.stdin":         {"stdin"},
	"after.within":       {"within"},
	"calendar.content":   {"calendar"},
	"calendar.event":     {"event"},
	"calendar.zones":     {"zone"},
	"calendar.url":       {"calendar"},
	"cron":               {"cron", "every", "at"},
	"hosts":              {"hosts-file", "hosts"},
	"n":                  {"limit"},
	"labels":             {"schedule-label", "label"},
	"outcomes":           {"outcome"},
	"principal":          {"by"},
	"probe":              {"ping"},
	"procedure":          {"proc"},
	"procedures":         {"proc"},
	"rate_per":           {"rate"},
	"request.labels":     {"label"},
	"retry.attempts":     {"attempts"},
	"retry.backoff":      {"backoff"},
	"retry.on":           {"retry"},
	"schedules":          {"schedule"},
	"share":              {"subset"},
	"states":             {"state"},
	"to":                 {"to", "webhook", "mail"},
	"to.mail.to":         {"mail"},
	"to.webhook.secrets": {"secret"},
	"to.webhook.url":     {"webhook"},
	"types":              {"type"},
	"zones":              {"zone"},
}

// fieldIndex is the place of an element in the name of a field: after[0].schedule.
var fieldIndex = regexp.MustCompile(`\[\d+\]`)

// flagOf is the flag by which a field of a request is given to a command; nil if there is none, as of what a
// file of steps has.
func flagOf(cmd *cobra.Command, field string) *pflag.Flag {
	field, _, _ = strings.Cut(fieldIndex.ReplaceAllString(field, ""), " ") // label env
	for {
		outer, inner, inside := strings.Cut(field, ".")
		names := fieldFlags[field]
		if names == nil {
			names = []string{strings.ReplaceAll(field, "_", "-")}
		}
		flag := givenFlag(cmd, names)
		if flag != nil || !inside || outer != "request" && outer != "batch" && outer != "options" {
			return flag
		}
		field = inner
	}
}

// givenFlag is the first flag with one of these names that was given or, if none was, that the command
// has: of those that all commands have it is only one that was given.
func givenFlag(cmd *cobra.Command, names []string) (first *pflag.Flag) {
	for _, name := range names {
		flag := cmd.Flags().Lookup(name)
		switch {
		case flag == nil:
		case flag.Changed:
			return flag
		case first == nil && cmd.InheritedFlags().Lookup(name) == nil:
			first = flag
		}
	}
	return first
}

// ofFlag is an error of a field whose value a flag gave that is not called so.
func ofFlag(flag string, err error) error {
	var wrong *harp.FieldError
	if !errors.As(err, &wrong) {
		return err
	}
	return invalid(flag, "%s", wrong.Message)
}

// flagError is the error of a command line whose flags cannot be read.
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return unknownFlag(cmd, err)
	}
	text := wrong.Unwrap().Error()
	var number *strconv.NumError
	switch kind := wrong.GetFlag().Value.Type(); {
	case !errors.As(err, &number):
	case kind == "bool":
		text = fmt.Sprintf("must be true or false, is %q", wrong.GetValue())
	case errors.Is(err, strconv.ErrRange):
		text = wrong.GetValue() + " is too large"
	default:
		text = fmt.Sprintf("must be a whole number, is %q", wrong.GetValue())
	}
	return invalid(wrong.GetFlag().Name, "%s", text)
}

// clashingFlags is the error of a command that is given two flags of which it takes one.
func clashingFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		for _, group := range flag.Annotations[onlyOneOf] {
			for name := range strings.FieldsSeq(group) {
				if other := cmd.Flags().Lookup(name); err == nil && name != flag.Name && other.Changed {
					err = fmt.Errorf("--%s cannot be combined with --%s", flag.Name, name)
				}
			}
		}
	})
	return err
}

// onlyOneOf is the annotation by which cobra's MarkFlagsMutuallyExclusive keeps its groups.
const onlyOneOf = "cobra_annotation_mutually_exclusive"

// errorText is an error in words, in which a field is called by the flag that gives it.
func (c *cli) errorText(err error) string {
	text := strings.TrimPrefix(err.Error(), "harp: ")
	var wrong *harp.FieldError
	if c.command == nil || !errors.As(err, &wrong) {
		return text
	}
	named := &harp.FieldError{Message: wrong.Message}
	switch flag := flagOf(c.command, wrong.Field); {
	case flag != nil:
		named.Field = "--" + flag.Name
	case c.command.Name() == "exec" && strings.HasPrefix(wrong.Field, "args.argv"):
		named.Field = "COMMAND"
	default:
		return text
	}
	return strings.Replace(text, wrong.Error(), named.Error(), 1)
}
