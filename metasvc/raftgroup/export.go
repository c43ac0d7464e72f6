package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/wal"
)

// HandedIndex returns the index up to which the machine has been given the log: that of
// the last command or configuration. Whatever has been confirmed is not behind it.
// AppliedIndex comes as far, unlike to CommitIndex.
func (g *Group) HandedIndex() uint64 { return g.fsm.handed.Load() }

// Entries calls fn with the entries from..to of the log, which are committed, for a
// copy of the group that goes on without its other members: configurations are made
// entries that mean nothing. The entry is fn's. An error that matches
// raft.ErrLogNotFound says that the log was cut meanwhile.
func (g *Group) Entries(from, to uint64, fn func(*raft.Log) error) error {
	for i := from; i <= to; i++ {
		l := new(raft.Log)
		if err := g.cfg.Group.GetLog(i, l); err != nil {
			return fmt.Errorf("raftgroup: entry %d of group %d: %w", i, g.cfg.Group.ID(), err)
		}
		if l.Type == raft.LogConfiguration {
			l = &raft.Log{Index: l.Index, Term: l.Term, Type: raft.LogNoop, AppendedAt: l.AppendedAt}
		}
		if err := fn(l); err != nil {
			return err
		}
	}
	return nil
}

// SoleConfiguration is the configuration, as a checkpoint has it, of a group whose only
// member is that node.
func SoleConfiguration(nodeID string) []byte { return raft.EncodeConfiguration(sole(nodeID)) }

func sole(nodeID string) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(nodeID), Address: raft.ServerAddress(nodeID),
	}}}
}

// Begin stores the term of a group that goes on from a checkpoint, or from entries that
// are stored already: it has voted in no later one.
func Begin(log *wal.Group, term uint64) error {
	return log.SetUint64([]byte(keyCurrentTerm), term)
}

// End returns the index and the term of the last entry of a stopped group, in its log or
// before that in the newest checkpoint, and the term that it is in. A log that
// does not go on from the checkpoint is ErrCorrupt, or, as after a crash, emptied.
func End(log *wal.Group, newest checkpoint.Meta) (index, last, current uint64, err error) {
	if err = reconcile(log, newest); err != nil {
		return 0, 0, 0, err
	}
	index, last = newest.Index, newest.Term
	end, err := log.LastIndex()
	if err == nil && end > 0 {
		index = end
		last, err = log.Term(end)
	}
	if err != nil {
		return 0, 0, 0, err
	}
	current, err = log.GetUint64([]byte(keyCurrentTerm))
	if err != nil && !errors.Is(err, wal.ErrKeyNotFound) {
		return 0, 0, 0, err
	}
	return index, last, max(current, last), nil
}

// Isolate makes a node the only member of a stopped group, with all that its log holds,
// committed or not: by commands and a configuration at the end of it, in a term of their
// own. newest is the group's newest checkpoint. It returns what a checkpoint behind these is of.
func Isolate(log *wal.Group, newest checkpoint.Meta, nodeID string, commands ...[]byte) (checkpoint.Meta, error) {
	index, _, term, err := End(log, newest)
	if err != nil {
		return checkpoint.Meta{}, err
	}
	if index == 0 {
		return checkpoint.Meta{}, fmt.Errorf("%w: group %d holds nothing", ErrCorrupt, log.ID())
	}
	term++
	if err := Begin(log, term); err != nil {
		return checkpoint.Meta{}, err
	}
	var entries []*raft.Log
	for _, data := range commands {
		index++
		entries = append(entries, &raft.Log{Index: index, Term: term, Type: raft.LogCommand, Data: data})
	}
	index++
	conf := SoleConfiguration(nodeID)
	entries = append(entries, &raft.Log{Index: index, Term: term, Type: raft.LogConfiguration, Data: conf})
	return checkpoint.Meta{Index: index, Term: term, Configuration: conf, ConfigurationIndex: index}, log.StoreLogs(entries)
}

// Commands calls fn with the commands that the log of a stopped group has after an
// index, committed or not.
func Commands(log *wal.Group, after uint64, fn func(Entry) error) error {
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	for i := max(first, after+1); i <= last; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil {
			return fmt.Errorf("raftgroup: entry %d of group %d: %w", i, log.ID(), err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if err := fn(Entry{Index: l.Index, Term: l.Term, Data: l.Data}); err != nil {
			return err
		}
	}
	return nil
}

// Members are the names of the members of a stopped group, as of the newest
// configuration in its log, or else in its newest checkpoint.
func Members(log *wal.Group, newest checkpoint.Meta) (names []string, err error) {
	defer func() {
		if p := recover(); p != nil { // DecodeConfiguration has no other way to complain
			err = fmt.Errorf("%w: configuration of group %d: %v", ErrCorrupt, log.ID(), p)
		}
	}()
	data := newest.Configuration
	first, err := log.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, err
	}
	for i := last; i > newest.Index && i >= first; i-- {
		var l raft.Log
		if err := log.GetLog(i, &l); err != nil {
			return nil, fmt.Errorf("raftgroup: entry %d of group %d: %w", i, log.ID(), err)
		}
		if l.Type == raft.LogConfiguration {
			data = l.Data
			break
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	for _, s := range raft.DecodeConfiguration(data).Servers {
		names = append(names, string(s.ID))
	}
	return names, nil
}
