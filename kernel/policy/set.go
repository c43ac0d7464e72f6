package policy

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// Set is the policies of one tenant, ready to be matched. Immutable; the zero
// value has none.
type Set struct {
	own, operator []rule // by falling priority, then by name
}

type rule struct {
	*kernel.Policy
	pattern *regexp.Regexp
}

// compile reads a pattern. Go's expressions are linear in time, so a pattern
// from outside is no danger.
func compile(pattern string) (*regexp.Regexp, error) { return regexp.Compile(pattern) }

// New makes a set of policies, all of which have passed Check. It keeps them.
func New(policies []*kernel.Policy) *Set {
	s := &Set{}
	for _, p := range policies {
		pattern, err := compile(p.Pattern)
		if err != nil {
			continue // it has passed Check
		}
		if p.Operator {
			s.operator = append(s.operator, rule{p, pattern})
		} else {
			s.own = append(s.own, rule{p, pattern})
		}
	}
	order := func(a, b rule) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(s.own, order)
	slices.SortFunc(s.operator, order)
	return s
}

// Effective is what applies to one object; either may be nil.
type Effective struct {
	Policy, Operator *kernel.Policy
}

// Queue returns the policies that apply to a queue: of each sort the one with
// the highest priority, and of equal ones the first by name.
func (s *Set) Queue(name string, t kernel.QueueType) Effective {
	if s == nil {
		return Effective{}
	}
	fits := func(to kernel.PolicyTarget) bool {
		switch to {
		case kernel.PolicyAll, kernel.PolicyQueues:
			return true
		case kernel.PolicyClassicQueues:
			return t == kernel.Classic
		case kernel.PolicyQuorumQueues:
			return t == kernel.Quorum
		case kernel.PolicyStreams:
			return t == kernel.Stream
		}
		return false
	}
	return Effective{first(s.own, name, fits), first(s.operator, name, fits)}
}

// Exchange returns the policy that applies to an exchange, or nil.
func (s *Set) Exchange(name string) *kernel.Policy {
	if s == nil {
		return nil
	}
	return first(s.own, name, func(to kernel.PolicyTarget) bool {
		return to == kernel.PolicyAll || to == kernel.PolicyExchanges
	})
}

func first(rules []rule, name string, fits func(kernel.PolicyTarget) bool) *kernel.Policy {
	for _, r := range rules {
		if fits(r.ApplyTo) && r.pattern.MatchString(name) {
			return r.Policy
		}
	}
	return nil
}

// Value returns a setting of p, which may be nil.
func Value(p *kernel.Policy, name string) (any, bool) {
	if p == nil {
		return nil, false
	}
	for _, a := range p.Definition {
		if a.Name == name {
			return a.Value, true
		}
	}
	return nil, false
}

// Definition returns the effective settings for listings: those of the policy,
// and of the operator policy where that one is smaller or alone.
func (e Effective) Definition() []kernel.Argument {
	var list []kernel.Argument
	if e.Policy != nil {
		list = slices.Clone(e.Policy.Definition)
	}
	if e.Operator == nil {
		return list
	}
	for _, a := range e.Operator.Definition {
		i := slices.IndexFunc(list, func(b kernel.Argument) bool { return b.Name == a.Name })
		if i < 0 {
			list = append(list, a)
		} else if limit, ok := a.Value.(int64); !ok || tighter(limit, list[i].Value) {
			list[i] = a
		}
	}
	Sort(list)
	return list
}

// tighter reports whether limit is smaller than another one; a negative one is
// no limit at all.
func tighter(limit int64, than any) bool {
	other, ok := than.(int64)
	return !ok || limit >= 0 && (other < 0 || limit < other)
}
