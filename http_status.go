package harp

// HTTPStatus returns the status with which an HTTP service may answer where a call or a
// question failed: 200 for nil, 400 for what is invalid, 403 for what is not allowed, 404
// for what is not there, 409 for a conflict, 410 for what was pruned, 429 for what a limit
// refuses, 507 where a disk is full, 502 for the failure of a procedure or an agent, 503 for
// what cannot be reached, 504 for what was not done in time, 499 for what was cancelled or
// whose caller has gone, and 500 for all else.
func HTTPStatus(err error) int {
	const clientClosedRequest = 499 // of nginx; it has no name in net/http
	if err == nil {
		return 200
	}
	status, known := map[string]int{
		"not_found": 404, "pruned": 410, "conflict": 409, "invalid": 400, "denied": 403, "refused": 429, "no_space": 507,
		"rejected": 502, "rejected_not_found": 404, "rejected_invalid": 400, "rejected_denied": 403,
		"unreachable": 503, "expired": 504, "expired_offline": 503, "cancelled": clientClosedRequest, "timeout": 504,
		"lost": 502, "unavailable": 503, "closed": 503, "duplicate_host": 409, codeRemote: 502,
	}[FailureOf(err).Code]
	switch {
	case known:
		return status
	case FaultOf(err) == FaultCaller: // its ctx ended
		return clientClosedRequest
	}
	return 500
}
