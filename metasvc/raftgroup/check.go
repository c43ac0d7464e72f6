package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/wal"
)

// newest returns the newest checkpoint, with Index 0 if there is none.
func newest(s *checkpoint.Store) checkpoint.Meta {
	if list := s.List(); len(list) > 0 {
		return list[0]
	}
	return checkpoint.Meta{}
}

// reconcile makes the log fit the checkpoint c, as a crash may have left them.
//
// A log that begins after c.Index+1 lacks entries: damage. One that ends before
// c.Index, or has another term there, is a tail from before a checkpoint that a
// leader has sent: the library forgets to remove it, and a crash may come before
// it could. It is emptied, the log goes on after c.
func reconcile(g *wal.Group, c checkpoint.Meta) error {
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	if first > c.Index+1 {
		return fmt.Errorf("%w: the log of group %d begins at %d, the newest checkpoint is at %d",
			ErrCorrupt, g.ID(), first, c.Index)
	}
	if c.Index == 0 || first == c.Index+1 {
		return nil
	}
	if last >= c.Index {
		term, err := g.Term(c.Index)
		if err != nil {
			return err
		}
		if term == c.Term {
			return nil
		}
	}
	return g.DeleteRange(first, last)
}

// bootstrap stores the first configuration in a group that has nothing. A crash
// between the two steps leaves term 1 and no entry, which is done again.
func bootstrap(s *store, c checkpoint.Meta, servers []Server) error {
	last, err := s.LastIndex()
	if err != nil || last > 0 || c.Index > 0 || len(servers) == 0 {
		return err
	}
	term, err := s.GetUint64([]byte(keyCurrentTerm))
	if err != nil && !errors.Is(err, wal.ErrKeyNotFound) {
		return err
	}
	if term > 1 {
		return nil // it has taken part in a group already
	}
	var conf raft.Configuration
	for _, srv := range servers {
		suffrage := raft.Voter
		if srv.Learner {
			suffrage = raft.Nonvoter
		}
		conf.Servers = append(conf.Servers, raft.Server{Suffrage: suffrage,
			ID: raft.ServerID(srv.ID), Address: raft.ServerAddress(srv.Address)})
	}
	if err := s.Group.SetUint64([]byte(keyCurrentTerm), 1); err != nil {
		return err
	}
	return s.StoreLog(&raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(conf)})
}
