package failures

import (
	"fmt"
	"strings"

	"github.com/harpcaller/harp"
)

// Why a batch is refused. The dispatcher refuses it so, and the command says so before it asks.

// CheckHostCount refuses a batch whose target selects more hosts than it is to call at most, or fewer than it
// takes of them. Errors: harp.ErrRefused, harp.ErrInvalid (subset).
func CheckHostCount(o *harp.BatchOptions, hosts int) error {
	if o.MaxHosts > 0 && hosts > o.MaxHosts {
		return New("refused", fmt.Sprintf("max_hosts: the target selects %d hosts, at most %d are to be called", hosts, o.MaxHosts)).Err()
	}
	if o.Subset == "" {
		return nil
	}
	n, err := harp.ShareOf(o.Subset, hosts)
	if err == nil && n > hosts {
		err = &harp.FieldError{Field: "subset", Message: fmt.Sprintf("is %d of %d hosts", n, hosts)}
	}
	return err
}

// CheckFit refuses hosts of which one cannot run the call. Errors: harp.ErrNotFound (procedure), harp.ErrInvalid
// naming the field, both with the first hosts; harp.ErrRefused if the preview does not say why.
func CheckFit(found *harp.Preview) error {
	if found.Unfit == 0 {
		return nil
	}
	var names []string
	for _, h := range found.UnfitHosts {
		names = append(names, h.Host)
	}
	f := New("refused", "cannot run the call")
	if len(names) > 0 && found.UnfitHosts[0].Err != nil { // a preview may come from elsewhere
		f = harp.FailureOf(found.UnfitHosts[0].Err)
	}
	f.Message = strings.TrimRight(f.Message, ".") + ": " + firstHosts(found.Unfit, names)
	return f.Err()
}

// CheckPresent refuses hosts of which one is away. Errors: harp.ErrUnreachable, with the first ones.
func CheckPresent(found *harp.Preview) error {
	if found.Away == 0 {
		return nil
	}
	return &harp.HostError{Host: firstHosts(found.Away, found.AwayHosts), Stage: "lookup", Err: harp.ErrUnreachable}
}

// firstHosts says how many hosts these are, and the names of the first.
func firstHosts(n int, names []string) string {
	const most = 5
	count := "1 host"
	if n > 1 {
		count = fmt.Sprintf("%d hosts", n)
	}
	text := strings.Join(append([]string{count}, names[:min(len(names), most)]...), ", ")
	if n > most {
		text += ", …"
	}
	return text
}
