package proc

// search is what is known of a command, to tell its processes from all others.
type search struct {
	self    int      // this process, which is never one of them; nor is what it descends from
	leader  Identity // the process that was started
	held    bool     // the leader is not reaped: no other process, group or session has its number
	runs    bool     // nor has it ended
	adopted bool     // orphans become children of this process, and it has no others but of this command
	others  map[int]bool

	cookied func(pid int) (bool, error) // has the command's mark in its environment; nil: that says nothing
	inside  map[int]bool                // what is in the cgroup
	seen    func(key) bool              // was found before: when its parent ends, that may be all that tells
}

// of returns those of all that are the command's and have not ended. A process is when it
// is the leader, in its group or session, in the cgroup, carries the mark, was adopted, was
// found before, or has a parent that is one. The error says that this is not known.
func (s search) of(all []member) ([]member, error) {
	never := s.strangers(all)
	children := map[int][]member{}
	var found, next []member
	seen := map[int]bool{}
	for _, m := range all {
		children[m.parent] = append(children[m.parent], m)
	}
	ours, err := s.seeds(all, never)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if ours(m) && !never[m.pid] {
			next = append(next, m)
		}
	}
	for len(next) > 0 {
		m := next[0]
		next = next[1:]
		if seen[m.pid] {
			continue
		}
		seen[m.pid] = true
		if !m.dead {
			found = append(found, m)
		}
		for _, child := range children[m.pid] {
			// A child that is older than its parent is of one that had the number before.
			if !never[child.pid] && child.start >= m.start {
				next = append(next, child)
			}
		}
	}
	return found, nil
}

// strangers are the processes that cannot be of the command, whatever they look like:
// init, this process with what it descends from, and other commands of it.
func (s search) strangers(all []member) map[int]bool {
	never := map[int]bool{0: true, 1: true, s.self: true}
	for pid := range s.others {
		never[pid] = true
	}
	parents := make(map[int]int, len(all))
	for _, m := range all {
		parents[m.pid] = m.parent
	}
	for pid := parents[s.self]; pid > 1 && !never[pid]; pid = parents[pid] {
		never[pid] = true
	}
	return never
}

// seeds returns what tells, without a look at the parents, whether a process is of the
// command.
func (s search) seeds(all []member, never map[int]bool) (func(member) bool, error) {
	marked, err := s.marked(all, never)
	if err != nil {
		return nil, err
	}
	group, session := s.held, s.held
	for _, m := range all {
		if m.pid == s.leader.PID && m.start == s.leader.Start {
			group, session = true, true
		}
		// The number of a session is not given away while one process is in it: that
		// one of the command's is says that the session is the leader's. So with groups.
		// 0 is no number: it stands for every group and session that began outside of
		// this pid namespace, and for a leader that is not known.
		if marked[m.pid] && s.leader.PID > 0 {
			group = group || m.group == s.leader.PID
			session = session || m.session == s.leader.PID
		}
	}
	return func(m member) bool {
		return marked[m.pid] || s.inside[m.pid] || s.seen != nil && s.seen(m.key()) ||
			group && m.group == s.leader.PID || session && m.session == s.leader.PID ||
			s.adopted && len(s.others) == 0 && m.parent == s.self
	}, nil
}

func (s search) marked(all []member, never map[int]bool) (map[int]bool, error) {
	marked := map[int]bool{}
	if s.cookied == nil {
		return marked, nil
	}
	for _, m := range all {
		if m.start < s.leader.Start || m.dead || never[m.pid] {
			continue
		}
		is, err := s.cookied(m.pid)
		if err != nil {
			return nil, err
		}
		if is {
			marked[m.pid] = true
		}
	}
	return marked, nil
}
