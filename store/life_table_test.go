package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// A row of the table of a job's life.
type row struct {
	from    string
	past    []store.Event // what leads to it
	event   store.Event
	to      harp.State // "": refused
	reason  string
	started harp.Ran
	slot    string // takes, keeps, gives, -
	tell    bool
	code    string // of the failure
	retry   harp.RetryPolicy
}

var (
	queued     = []store.Event{}
	sent       = ev(store.Claimed)
	running    = ev(store.Claimed, store.Started)
	cancelSent = ev(store.Claimed, store.CancelReq)
	leftSent   = append(ev(store.Claimed), store.Event{Kind: store.Stop, Left: []int{7}}, store.Event{Kind: store.Stop})
	cancelling = ev(store.Claimed, store.Started, store.CancelReq)
	limited    = append(ev(store.Claimed, store.Started), stopped(store.Stop, harp.LimitSilenceTimeout))
	unknown    = ev(store.Claimed, store.Started, store.Silent)
	unSent     = ev(store.Claimed, store.Silent)
	unCancel   = ev(store.Claimed, store.Silent, store.CancelReq)
	unStopping = ev(store.Claimed, store.Started, store.CancelReq, store.Silent)
	isLost     = append(ev(store.Claimed, store.Started), lose(harp.LostAgentRestarted))
)

var none harp.RetryPolicy

// Under the policy of [twice].
var (
	failedOnce  = append(ev(store.Claimed, store.Started), failed(store.End, "remote"))
	timedOnce   = append(ev(store.Claimed, store.Started), stopped(store.Stop, harp.LimitSilenceTimeout), stopped(store.End, harp.LimitSilenceTimeout))
	lostOnce    = append(ev(store.Claimed, store.Started, store.Silent), lose(harp.LostTooLong))
	survives    = append(slices.Clone(lostOnce), ev(store.Alive)...)
	overdue     = append(ev(store.Claimed, store.Started), lose(harp.LostTooLong))
	overdueGone = append(slices.Clone(overdue), lose(harp.LostAgentRestarted))
	sentTwice   = append(slices.Clone(failedOnce), ev(store.Claimed)...)
	sentAgain   = append(slices.Clone(lostOnce), ev(store.Claimed)...)
	askedAgain  = append(slices.Clone(sentAgain), ev(store.NotNow)...)
	stopsAgain  = append(slices.Clone(sentAgain), ev(store.CancelReq)...)
	runsAgain   = append(slices.Clone(sentAgain), ev(store.Started)...)
	toldToStop  = append(slices.Clone(limited), ev(store.CancelReq)...)
)

// again are the rows of the table about further attempts.
var again = []row{
	{"running", running, failed(store.End, "remote"), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"running", running, lose(harp.LostAgentRestarted), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"sent", sent, lose(harp.LostJournalGone), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"running", running, lose(harp.LostTooLong), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"running", running, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost", twice},
	{"cancelling, by a limit", limited, lose(harp.LostTooLong), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"cancelling, by a limit", limited, stopped(store.End, harp.LimitSilenceTimeout), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"unknown", unknown, lose(harp.LostTooLong), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},
	{"unknown", unknown, failed(store.End, "remote"), harp.StateQueued, harp.ReasonBackoff, "", "gives", false, "", twice},

	// The attempt's outcome is the job's: it is good, or nobody wants another.
	{"running", running, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, "", twice},
	{"sent", sent, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidNotRun, "gives", false, "rejected", twice},
	{"cancelling", cancelling, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote", twice},
	{"cancelling", cancelling, lose(harp.LostAgentRestarted), harp.StateLost, harp.LostAgentRestarted, harp.MayHaveRun, "gives", false, "lost", twice},
	{"cancelling, by both", toldToStop, stopped(store.End, harp.LimitSilenceTimeout), harp.StateTimedOut, harp.LimitSilenceTimeout, harp.DidRun, "gives", false, "timeout", twice},
	{"unknown", unknown, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost", twice},
	{"running", running, lose(harp.LostHostRemoved), harp.StateLost, harp.LostHostRemoved, harp.MayHaveRun, "gives", false, "lost", twice},
	{"running", running, lose(harp.LostRestored), harp.StateLost, harp.LostRestored, harp.MayHaveRun, "gives", false, "lost", twice},
	{"running, the last allowed", runsAgain, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote", twice},
	{"running, the last allowed", runsAgain, lose(harp.LostAgentRestarted), harp.StateLost, harp.LostAgentRestarted, harp.MayHaveRun, "gives", false, "lost", twice},

	{"queued, after a failure", failedOnce, ev(store.Claimed)[0], harp.StateSent, "", "", "takes", false, "", twice},
	{"queued, after a failure", failedOnce, because(store.Expire, "start_before"), harp.StateFailed, "", harp.DidRun, "-", false, "remote", twice},
	{"queued, after a failure", failedOnce, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.DidRun, "-", false, "cancelled", twice},
	{"queued, after a limit", timedOnce, because(store.Expire, harp.ReasonOffline), harp.StateTimedOut, harp.LimitSilenceTimeout, harp.DidRun, "-", false, "timeout", twice},
	{"queued, after a failure", failedOnce, lose(harp.LostHostRemoved), harp.StateCancelled, harp.LostHostRemoved, harp.DidRun, "-", false, "cancelled", twice},
	{"queued, after a failure", failedOnce, lose(harp.LostRestored), harp.StateLost, harp.LostRestored, harp.MayHaveRun, "-", false, "lost", twice},
	{"queued, after a loss", lostOnce, ev(store.Claimed)[0], harp.StateSent, "", "", "takes", false, "", twice},
	{"queued, after a loss", lostOnce, because(store.Expire, "start_before"), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "-", false, "lost", twice},
	{"queued, after a loss", lostOnce, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.MayHaveRun, "-", false, "cancelled", twice},

	// What is proven not to have started says nothing of the attempt before.
	{"sent, after a failure", sentTwice, ev(store.NotNow)[0], harp.StateQueued, harp.ReasonAgentBusy, "", "gives", false, "", twice},
	{"sent, after a failure", sentTwice, because(store.NotNow, "start_before"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote", twice},
	{"sent, after a failure", sentTwice, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidRun, "gives", false, "rejected", twice},
	{"sent, after a loss", sentAgain, because(store.Withdrawn, "start_before"), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "gives", false, "lost", twice},
	{"sent, after a loss", sentAgain, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidRun, "gives", false, "rejected", twice},
	{"cancelling, after a loss", stopsAgain, ev(store.NotNow)[0], harp.StateCancelled, "", harp.MayHaveRun, "gives", false, "cancelled", twice},
	{"cancelling, after a loss", stopsAgain, ev(store.Withdrawn)[0], harp.StateCancelled, "", harp.MayHaveRun, "gives", false, "cancelled", twice},
	{"queued again, after a loss", askedAgain, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.MayHaveRun, "-", false, "cancelled", twice},
	{"queued again, after a loss", askedAgain, because(store.Expire, "start_before"), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "-", false, "lost", twice},
	{"queued again, after a loss", askedAgain, ev(store.End)[0], "", "", "", "", false, "", twice},
	{"queued again, after a loss", askedAgain, ev(store.Alive)[0], "", "", "", "", false, "", twice},

	// The attempt that was given up is heard of while the job waits for the next.
	{"queued, after a loss", lostOnce, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "-", false, "", twice},
	{"queued, after a loss", lostOnce, failed(store.End, "remote"), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, after a loss", lostOnce, stopped(store.End, harp.LimitSilenceTimeout), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, after a loss", lostOnce, ev(store.Alive)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", true, "", twice},
	{"queued, after a loss", lostOnce, ev(store.Gone)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, after a loss", lostOnce, failed(store.Refused, "rejected"), "", "", "", "", false, "", twice},
	{"queued, after a loss", lostOnce, ev(store.Silent)[0], "", "", "", "", false, "", twice},
	{"queued, after a loss", lostOnce, lose(harp.LostAgentRestarted), "", "", "", "", false, "", twice},
	{"queued, after a loss", lostOnce, lose(harp.LostJournalGone), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, after a loss", lostOnce, ev(store.Started)[0], "", "", "", "", false, "", twice},
	{"queued, after a failure", failedOnce, ev(store.End)[0], "", "", "", "", false, "", twice},
	{"queued, after a failure", failedOnce, ev(store.Alive)[0], "", "", "", "", false, "", twice},
	{"queued, after a failure", failedOnce, ev(store.Gone)[0], "", "", "", "", false, "", twice},

	// And has to end first if it lives.
	{"queued, it lives", survives, ev(store.Claimed)[0], "", "", "", "", false, "", twice},
	{"queued, it lives", survives, ev(store.Alive)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", true, "", twice},
	{"queued, it lives", survives, stopped(store.End, "cancel"), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, it lives", survives, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "-", false, "", twice},
	{"queued, it lives", survives, ev(store.Gone)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, it lives", survives, ev(store.Silent)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, it lives", survives, lose(harp.LostJournalGone), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, it lives", survives, lose(harp.LostForced), "", "", "", "", false, "", twice},
	{"queued, it lives", survives, lose(harp.LostAgentRestarted), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},

	// So it may where it was given up while its host was connected.
	{"queued, it may live", overdue, ev(store.Claimed)[0], "", "", "", "", false, "", twice},
	{"queued, it may live", overdue, ev(store.Alive)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", true, "", twice},
	{"queued, it may live", overdue, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "-", false, "", twice},
	{"queued, it may live", overdue, stopped(store.End, "cancel"), harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, it may live", overdue, ev(store.Silent)[0], harp.StateQueued, harp.ReasonBackoff, "", "-", false, "", twice},
	{"queued, it may live", overdue, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.MayHaveRun, "-", false, "cancelled", twice},
	{"queued, it is over", overdueGone, ev(store.Claimed)[0], harp.StateSent, "", "", "takes", false, "", twice},
	{"queued, it lives", survives, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.MayHaveRun, "-", false, "cancelled", twice},
	{"queued, it lives", survives, because(store.Expire, "start_before"), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "-", false, "lost", twice},
}

// table is the table of the life of a job, row by row.
var table = []row{
	{"queued", queued, ev(store.Claimed)[0], harp.StateSent, "", "", "takes", false, "", none},
	{"queued", queued, ev(store.CancelReq)[0], harp.StateCancelled, "", harp.DidNotRun, "-", false, "cancelled", none},
	{"queued", queued, because(store.Expire, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "-", false, "expired", none},
	{"queued", queued, because(store.Expire, harp.ReasonOffline), harp.StateExpired, harp.ReasonOffline, harp.DidNotRun, "-", false, "expired_offline", none},
	{"queued", queued, lose(harp.LostHostRemoved), harp.StateCancelled, harp.LostHostRemoved, harp.DidNotRun, "-", false, "cancelled", none},
	{"queued", queued, lose(harp.LostRestored), harp.StateLost, harp.LostRestored, harp.MayHaveRun, "-", false, "lost", none},

	{"sent", sent, ev(store.Started)[0], harp.StateRunning, "", "", "keeps", false, "", none},
	{"sent", sent, ev(store.NotNow)[0], harp.StateQueued, harp.ReasonAgentBusy, "", "gives", false, "", none},
	{"sent", sent, because(store.NotNow, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "gives", false, "expired", none},
	{"sent", sent, failed(store.Refused, "rejected_denied"), harp.StateRejected, "rejected_denied", harp.DidNotRun, "gives", false, "rejected_denied", none},
	{"sent", sent, ev(store.CancelReq)[0], harp.StateCancelling, "cancel", "", "keeps", true, "", none},
	{"sent", sent, stopped(store.Stop, harp.LimitSilenceTimeout), harp.StateCancelling, harp.LimitSilenceTimeout, "", "keeps", false, "", none},
	{"sent", sent, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, "", none},
	{"sent", sent, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, "", none},
	{"sent", sent, because(store.Withdrawn, harp.ReasonOffline), harp.StateQueued, harp.ReasonOffline, "", "gives", false, "", none},
	{"sent", sent, because(store.Withdrawn, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "gives", false, "expired", none},
	{"sent", sent, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, "", none},
	{"sent", sent, stopped(store.Alive, harp.LimitSilenceTimeout), harp.StateCancelling, harp.LimitSilenceTimeout, "", "keeps", false, "", none},
	{"sent", sent, lose(harp.LostAgentRestarted), harp.StateLost, harp.LostAgentRestarted, harp.MayHaveRun, "gives", false, "lost", none},

	{"running", running, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, "", none},
	{"running", running, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote", none},
	{"running", running, ev(store.CancelReq)[0], harp.StateCancelling, "cancel", "", "keeps", true, "", none},
	{"running", running, stopped(store.Stop, harp.LimitMaxExecTime), harp.StateCancelling, harp.LimitMaxExecTime, "", "keeps", false, "", none},
	{"running", running, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, "", none},
	{"running", running, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, "", none},
	{"running", running, lose(harp.LostJournalGone), harp.StateLost, harp.LostJournalGone, harp.MayHaveRun, "gives", false, "lost", none},
	{"running", running, lose(harp.LostHostRemoved), harp.StateLost, harp.LostHostRemoved, harp.MayHaveRun, "gives", false, "lost", none},

	{"cancelling, not started", cancelSent, ev(store.Started)[0], harp.StateCancelling, "cancel", "", "keeps", false, "", none},
	{"cancelling, not started", cancelSent, ev(store.NotNow)[0], harp.StateCancelled, "", harp.DidNotRun, "gives", false, "cancelled", none},
	{"cancelling, not started", cancelSent, ev(store.Withdrawn)[0], harp.StateCancelled, "", harp.DidNotRun, "gives", false, "cancelled", none},
	{"cancelling, not started", cancelSent, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidNotRun, "gives", false, "rejected", none},
	{"cancelling", cancelling, ev(store.CancelReq)[0], harp.StateCancelling, "cancel", "", "keeps", false, "", none},
	{"cancelling", cancelling, stopped(store.Stop, harp.LimitSilenceTimeout), harp.StateCancelling, "cancel", "", "keeps", false, "", none},
	{"cancelling", cancelling, stopped(store.End, "cancel"), harp.StateCancelled, "", harp.DidRun, "gives", false, "cancelled", none},
	{"cancelling", cancelling, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, "", none},
	{"cancelling", cancelling, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote", none},
	{"cancelling", cancelling, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, "", none},
	{"unknown", unknown, ev(store.Silent)[0], harp.StateUnknown, "", "", "keeps", false, "", none},
	{"cancelling", cancelling, lose(harp.LostAgentRestarted), harp.StateLost, harp.LostAgentRestarted, harp.MayHaveRun, "gives", false, "lost", none},
	{"sent", sent, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost", none},
	{"running", running, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost", none},
	{"running", running, lose(harp.LostTooLong), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "gives", false, "lost", none},
	{"cancelling", cancelling, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost", none},
	{"cancelling", cancelling, lose(harp.LostTooLong), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "gives", false, "lost", none},
	{"cancelling, by a limit", limited, stopped(store.End, harp.LimitSilenceTimeout), harp.StateTimedOut, harp.LimitSilenceTimeout, harp.DidRun, "gives", false, "timeout", none},
	{"cancelling, by a limit", limited, ev(store.CancelReq)[0], harp.StateCancelling, harp.LimitSilenceTimeout, "", "keeps", true, "", none},
	{"cancelling, by a limit", limited, ev(store.Alive)[0], harp.StateCancelling, harp.LimitSilenceTimeout, "", "keeps", false, "", none},

	{"unknown", unknown, ev(store.CancelReq)[0], harp.StateUnknown, "", "", "keeps", false, "", none},
	{"unknown", unknown, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, "", none},
	{"unknown", unknown, ev(store.End)[0], harp.StateSucceeded, "", harp.DidRun, "gives", false, "", none},
	{"unknown", unknown, lose(harp.LostForced), harp.StateLost, harp.LostForced, harp.MayHaveRun, "gives", false, "lost", none},
	{"unknown", unknown, lose(harp.LostJournalGone), harp.StateLost, harp.LostJournalGone, harp.MayHaveRun, "gives", false, "lost", none},
	{"unknown", unknown, failed(store.End, "remote"), harp.StateFailed, "", harp.DidRun, "gives", false, "remote", none},
	{"unknown", unknown, lose(harp.LostTooLong), harp.StateLost, harp.LostTooLong, harp.MayHaveRun, "gives", false, "lost", none},
	{"unknown, was sent", unSent, ev(store.Alive)[0], harp.StateRunning, "", "", "keeps", false, "", none},
	{"unknown, was sent", unSent, because(store.Withdrawn, harp.ReasonOffline), harp.StateQueued, harp.ReasonOffline, "", "gives", false, "", none},
	{"unknown, was sent", unSent, because(store.Withdrawn, "start_before"), harp.StateExpired, "start_before", harp.DidNotRun, "gives", false, "expired", none},
	{"unknown, was sent", unSent, failed(store.Refused, "rejected"), harp.StateRejected, "rejected", harp.DidNotRun, "gives", false, "rejected", none},
	{"unknown, to be cancelled", unCancel, ev(store.Withdrawn)[0], harp.StateCancelled, "", harp.DidNotRun, "gives", false, "cancelled", none},
	{"unknown, to be cancelled", unCancel, ev(store.Alive)[0], harp.StateCancelling, "cancel", "", "keeps", true, "", none},
	{"unknown, was cancelling", unStopping, ev(store.Alive)[0], harp.StateCancelling, "cancel", "", "keeps", true, "", none},
	{"unknown, was cancelling", unStopping, stopped(store.End, "cancel"), harp.StateCancelled, "", harp.DidRun, "gives", false, "cancelled", none},

	// What would make a liar of somebody.
	{"running", running, ev(store.NotNow)[0], "", "", "", "", false, "", none},
	{"running", running, ev(store.Withdrawn)[0], "", "", "", "", false, "", none},
	{"running", running, failed(store.Refused, "rejected"), "", "", "", "", false, "", none},
	{"sent, processes were left", leftSent, ev(store.NotNow)[0], "", "", "", "", false, "", none},
	{"sent, processes were left", leftSent, ev(store.Withdrawn)[0], "", "", "", "", false, "", none},
	{"sent, processes were left", leftSent, failed(store.Refused, "rejected"), "", "", "", "", false, "", none},
	{"cancelling", cancelling, ev(store.NotNow)[0], "", "", "", "", false, "", none},
	{"cancelling", cancelling, failed(store.Refused, "rejected"), "", "", "", "", false, "", none},
	{"unknown", unknown, ev(store.Withdrawn)[0], "", "", "", "", false, "", none},
	{"unknown, was cancelling", unStopping, ev(store.Withdrawn)[0], "", "", "", "", false, "", none},
	{"running", running, lose("no reason"), "", "", "", "", false, "", none},
	{"unknown", unknown, lose(""), "", "", "", "", false, "", none},
	{"queued", queued, lose(harp.LostForced), "", "", "", "", false, "", none},
	{"running", running, ev(store.Gone)[0], "", "", "", "", false, "", none},
	{"queued", queued, ev(store.Alive)[0], "", "", "", "", false, "", none},
	{"queued", queued, ev(store.Gone)[0], "", "", "", "", false, "", none},
	{"sent", sent, ev(store.Stop)[0], "", "", "", "", false, "", none},

	{"queued", queued, ev(store.Started)[0], "", "", "", "", false, "", none},
	{"queued", queued, ev(store.End)[0], "", "", "", "", false, "", none},
	{"queued", queued, ev(store.Silent)[0], "", "", "", "", false, "", none},
	{"queued", queued, lose(harp.LostTooLong), "", "", "", "", false, "", none},
	{"sent", sent, ev(store.Claimed)[0], "", "", "", "", false, "", none},
	{"sent", sent, because(store.Expire, "start_before"), "", "", "", "", false, "", none},
	{"running", running, ev(store.Claimed)[0], "", "", "", "", false, "", none},
	{"running", running, because(store.Expire, "start_before"), "", "", "", "", false, "", none},
	{"running", running, ev(store.Started)[0], "", "", "", "", false, "", none},
	{"unknown", unknown, ev(store.Started)[0], "", "", "", "", false, "", none},
	{"unknown", unknown, stopped(store.Stop, harp.LimitSilenceTimeout), "", "", "", "", false, "", none},
}

func TestLifeTable(t *testing.T) {
	for _, r := range slices.Concat(table, again) {
		t.Run(fmt.Sprintf("%s/%s_%s", r.from, r.event.Kind, r.event.Reason), func(t *testing.T) {
			before := lived(t, r.retry, r.past)
			e := about(before, r.event, 10)
			after, effect, err := before.Next(e)
			if r.to == "" {
				if !errors.Is(err, store.ErrIllegal) {
					t.Fatalf("the row: %s, %s is refused; it gives %s, %v", r.from, e.Kind, after.State, err)
				}
				return
			}
			want := store.Effect{Takes: r.slot == "takes", Gives: r.slot == "gives", Ends: r.to.Ended(), Tell: r.tell, Resume: e.Kind == store.Alive}
			if err != nil || after.State != r.to || after.Reason != r.reason || after.Started != r.started ||
				effect != want || after.Failure.Code != r.code {
				t.Errorf("the row: %s, %s -> %s(%s), started %q, slot %s, failure %q, tell %v\nit gives %s(%s), started %q, %+v, failure %q, %v",
					r.from, e.Kind, r.to, r.reason, r.started, r.slot, r.code, r.tell,
					after.State, after.Reason, after.Started, effect, after.Failure.Code, err)
			}
			if r.to.Ended() && !after.EndTime.Equal(e.At) {
				t.Errorf("it ended at %v, want %v", after.EndTime, e.At)
			}
		})
	}
}
