package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// settled makes a group of one member that works.
func settled(t *testing.T, p *peer, name string) *kmsg.JoinGroupResponse {
	t.Helper()
	joined := ask[*kmsg.JoinGroupResponse](p, joinRequest(name))
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, name, joined.MemberID, joined.Generation
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: joined.MemberID, MemberAssignment: []byte("work")}}
	if got := ask[*kmsg.SyncGroupResponse](p, sync); joined.ErrorCode != 0 || got.ErrorCode != 0 || string(got.MemberAssignment) != "work" {
		t.Fatalf("join %d, sync %+v", joined.ErrorCode, got)
	}
	return joined
}

func heartbeat(p *peer, name string, as *kmsg.JoinGroupResponse) int16 {
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = name, as.MemberID, as.Generation
	return ask[*kmsg.HeartbeatResponse](p, beat).ErrorCode
}

func commitCode(p *peer, name, topic string) int16 {
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 7, name, -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
	return ask[*kmsg.OffsetCommitResponse](p, commit).Topics[0].Partitions[0].ErrorCode
}

// TestTheNextServerKnowsTheGroups: whatever it is asked first about a group that another one
// has coordinated.
func TestTheNextServerKnowsTheGroups(t *testing.T) {
	for what, right := range map[string]func(p *peer, as *kmsg.JoinGroupResponse) bool{
		"heartbeat": func(p *peer, as *kmsg.JoinGroupResponse) bool { return heartbeat(p, "g", as) == 0 },
		"join": func(p *peer, as *kmsg.JoinGroupResponse) bool {
			again := joinRequest("g")
			again.MemberID = as.MemberID
			got := ask[*kmsg.JoinGroupResponse](p, again) // the leader's: the next generation
			return got.ErrorCode == 0 && got.Generation > as.Generation+1 && got.MemberID == as.MemberID
		},
		"commit": func(p *peer, _ *kmsg.JoinGroupResponse) bool {
			return commitCode(p, "g", "t") == kerr.UnknownMemberID.Code
		},
		"list": func(p *peer, _ *kmsg.JoinGroupResponse) bool {
			list := kmsg.NewPtrListGroupsRequest()
			list.Version = 4
			got := ask[*kmsg.ListGroupsResponse](p, list)
			return len(got.Groups) == 1 && got.Groups[0].GroupState == "Stable" && got.Groups[0].ProtocolType == "consumer"
		},
		"describe": func(p *peer, as *kmsg.JoinGroupResponse) bool {
			describe := kmsg.NewPtrDescribeGroupsRequest()
			describe.Groups = []string{"g"}
			g := ask[*kmsg.DescribeGroupsResponse](p, describe).Groups[0]
			return g.State == "Stable" && len(g.Members) == 1 && g.Members[0].MemberID == as.MemberID && string(g.Members[0].MemberAssignment) == "work"
		},
		"delete": func(p *peer, _ *kmsg.JoinGroupResponse) bool {
			remove := kmsg.NewPtrDeleteGroupsRequest()
			remove.Groups = []string{"g"}
			return ask[*kmsg.DeleteGroupsResponse](p, remove).Groups[0].ErrorCode == kerr.NonEmptyGroup.Code
		},
	} {
		n := newFake()
		addr, first := start(t, n, nil)
		p := dial(t, addr)
		p.createTopic("t", 1)
		as := settled(t, p, "g")
		if err := first.Shutdown(testContext(t)); err != nil {
			t.Fatal(err)
		}
		next, _ := start(t, n, nil)
		if !right(dial(t, next), as) {
			t.Errorf("%s: the group is not as it was", what)
		}
	}
}

// TestMembershipsThatCannotBeTold: nothing is answered about a group of which it is not known who
// its members are; where nobody keeps them they are here only.
func TestMembershipsThatCannotBeTold(t *testing.T) {
	n := newFake()
	n.keeping = kernel.Errorf(kernel.CodeInternal, "", "", "broken")
	addr, _ := start(t, n, nil)
	p := dial(t, addr)
	p.createTopic("t", 1)
	if got := ask[*kmsg.JoinGroupResponse](p, joinRequest("g")).ErrorCode; got != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("join: error %d", got)
	}
	if got := commitCode(p, "g", "t"); got != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("commit: error %d", got)
	}
	n.mu.Lock()
	n.keeping = kernel.Errorf(kernel.CodeNotImplemented, "", "", "an earlier version")
	n.mu.Unlock()
	if as := settled(t, p, "g"); heartbeat(p, "g", as) != 0 || len(n.kept) != 0 {
		t.Errorf("%d memberships are kept", len(n.kept))
	}
}

// TestAMissedTenureLoads: another node was a coordinator between two looks, and may have had
// the groups.
func TestAMissedTenureLoads(t *testing.T) {
	n := newFake()
	n.nodes, n.last = []broker.Tenure{{Node: "3-a", Number: 1}}, 1
	addr, s := start(t, n, twoNodes)
	p := dial(t, addr)
	as := settled(t, p, "g")
	look := func(last uint64, nodes ...broker.Tenure) {
		n.mu.Lock()
		n.nodes, n.last = nodes, last
		n.mu.Unlock()
		if _, err := s.views.view(testContext(t), 0); err != nil {
			t.Fatal(err)
		}
	}
	here := func() bool { _, ok := s.groups.Describe(groupKeyOf("g")); return ok }
	other := broker.Tenure{Node: "9-z", Number: 2}
	for other.Node = "9-z"; broker.Coordinator([]broker.Tenure{{Node: "3-a"}, other}, "/", "g").Node != "3-a"; {
		other.Node += "z"
	}
	look(2, broker.Tenure{Node: "3-a", Number: 1}, other)
	if !here() {
		t.Error("the group has gone though nothing was missed")
	}
	look(3, broker.Tenure{Node: "3-a", Number: 1}, other)
	if here() {
		t.Error("the group is here though a tenure was missed")
	}
	if code := heartbeat(p, "g", as); code != 0 {
		t.Errorf("heartbeat: error %d", code)
	}
}
