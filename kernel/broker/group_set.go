package broker

import "iter"

// groupSet is the groups of a topic, by name. Nearly all topics have one or two, for
// which a map of their own would be ten times as large.
type groupSet struct {
	few  []*group
	many map[string]*group // in their place, beyond fewGroups
}

const fewGroups = 8

func (s *groupSet) len() int { return len(s.few) + len(s.many) }

// get returns the group of a name, nil if there is none.
func (s *groupSet) get(name string) *group {
	if i := s.index(name); i >= 0 {
		return s.few[i]
	}
	return s.many[name]
}

func (s *groupSet) index(name string) int {
	for i, g := range s.few {
		if g.spec.Address.Group == name {
			return i
		}
	}
	return -1
}

// put adds a group, or puts it in the place of that of its name.
func (s *groupSet) put(g *group) {
	name := g.spec.Address.Group
	switch i := s.index(name); {
	case i >= 0:
		s.few[i] = g
	case s.many != nil:
		s.many[name] = g
	case len(s.few) < fewGroups:
		s.few = append(s.few, g)
	default:
		s.many = map[string]*group{name: g}
		for _, g := range s.few {
			s.many[g.spec.Address.Group] = g
		}
		s.few = nil
	}
}

func (s *groupSet) delete(name string) {
	if i := s.index(name); i >= 0 {
		last := len(s.few) - 1
		s.few[i], s.few[last] = s.few[last], nil
		s.few = s.few[:last]
	}
	if delete(s.many, name); len(s.many) == 0 {
		s.many = nil
	}
}

// all yields the groups. While it does, they may be deleted from the set only by
// who stops it.
func (s *groupSet) all() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, g := range s.few {
			if !yield(g) {
				return
			}
		}
		for _, g := range s.many {
			if !yield(g) {
				return
			}
		}
	}
}
