package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// twoNodes makes a server one of two nodes.
func twoNodes(cfg *Config) {
	cfg.Node, cfg.Spread = "3-a", true
	cfg.Brokers = func() []Broker {
		return []Broker{{3, "3-a", "10.0.0.3:9092", ""}, {5, "5-b", "10.0.0.5:9092", ""}}
	}
}

// tenures are those of nodes.
func tenures(nodes ...string) (list []broker.Tenure) {
	for i, n := range nodes {
		list = append(list, broker.Tenure{Node: n, Number: uint64(i)})
	}
	return list
}

// groupOf returns a name that a node coordinates, of the given ones.
func groupOf(nodes []broker.Tenure, node string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("group-", i); broker.Coordinator(nodes, "/", name).Node == node {
			return name
		}
	}
}

func joinRequest(name string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType = 3, name, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	return req
}

// TestCoordinatorsAreSpread: clients are told who coordinates which group, and the others
// refuse to.
func TestCoordinatorsAreSpread(t *testing.T) {
	n := newFake()
	n.nodes = tenures("3-a", "5-b")
	addr, _ := start(t, n, twoNodes)
	p := dial(t, addr)
	for node, id := range map[string]int32{"3-a": 3, "5-b": 5} {
		name := groupOf(n.nodes, node)
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{name}
		if got := ask[*kmsg.FindCoordinatorResponse](p, find).Coordinators[0]; got.ErrorCode != 0 || got.NodeID != id || got.Port == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		code := int16(0)
		if id != 3 {
			code = kerr.NotCoordinator.Code
		}
		if got := ask[*kmsg.JoinGroupResponse](p, joinRequest(name)); got.ErrorCode != code {
			t.Errorf("join %s: error %d, want %d", name, got.ErrorCode, code)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.MemberID = name, "nobody"
		if code == 0 {
			code = kerr.UnknownMemberID.Code
		}
		if got := ask[*kmsg.HeartbeatResponse](p, beat).ErrorCode; got != code {
			t.Errorf("heartbeat %s: error %d, want %d", name, got, code)
		}
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.MemberID = name, "nobody"
		if got := ask[*kmsg.LeaveGroupResponse](p, leave).ErrorCode; got != code {
			t.Errorf("leave %s: error %d, want %d", name, got, code)
		}
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	n.mu.Lock()
	n.nodes = tenures("9-unreachable")
	n.mu.Unlock()
	find.Version, find.CoordinatorKeys = 4, []string{"g"}
	if got := ask[*kmsg.FindCoordinatorResponse](p, find).Coordinators[0]; got.ErrorCode != kerr.CoordinatorNotAvailable.Code || got.NodeID != -1 {
		t.Errorf("of a node without address: %+v", got)
	}
}

// TestGroupsGoToTheirCoordinator: a node that is no longer a group's coordinator sends the
// members that wait away, and forgets the group.
func TestGroupsGoToTheirCoordinator(t *testing.T) {
	n := newFake()
	n.nodes = tenures("3-a")
	addr, s := start(t, n, twoNodes)
	p := dial(t, addr)
	both := tenures("3-a", "5-b")
	for _, name := range []string{groupOf(both, "3-a"), groupOf(both, "5-b")} {
		joined := ask[*kmsg.JoinGroupResponse](p, joinRequest(name))
		if joined.ErrorCode != 0 {
			t.Fatalf("join %s: error %d", name, joined.ErrorCode)
		}
	}
	waiting := dial(t, addr)
	correlation := waiting.send(joinRequest(groupOf(both, "5-b"))) // until the first has joined again
	until(testContext(t), t, "it waits", func() bool {
		d, _ := s.groups.Describe(groupKeyOf(groupOf(both, "5-b")))
		return len(d.Members) == 2
	})
	n.mu.Lock()
	n.nodes = both
	n.mu.Unlock()
	s.views.overtaken()
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = 3
	waiting.receive(correlation, resp)
	if resp.ErrorCode != kerr.NotCoordinator.Code {
		t.Errorf("who waited: error %d", resp.ErrorCode)
	}
	for name, there := range map[string]bool{groupOf(both, "3-a"): true, groupOf(both, "5-b"): false} {
		if _, ok := s.groups.Describe(groupKeyOf(name)); ok != there {
			t.Errorf("group %s is there: %v", name, ok)
		}
	}
}

// TestANewTenureBeginsWithoutGroups: a node that was not among the coordinators meanwhile
// knows nothing of what has become of its groups.
func TestANewTenureBeginsWithoutGroups(t *testing.T) {
	n := newFake()
	n.nodes = []broker.Tenure{{Node: "3-a", Number: 1}}
	addr, s := start(t, n, twoNodes)
	p := dial(t, addr)
	if joined := ask[*kmsg.JoinGroupResponse](p, joinRequest("g")); joined.ErrorCode != 0 || s.views.tenure().Number != 1 {
		t.Fatalf("error %d, %v", joined.ErrorCode, s.views.tenure())
	}
	n.mu.Lock()
	n.nodes = []broker.Tenure{{Node: "3-a", Number: 2}}
	n.mu.Unlock()
	s.views.overtaken()
	until(testContext(t), t, "the new tenure", func() bool { return s.views.tenure().Number == 2 })
	if _, ok := s.groups.Describe(groupKeyOf("g")); ok {
		t.Error("the group is there")
	}
}

// TestLeadersAreSpread: the partitions of a topic go round over the nodes; or all are at
// the one that serves; or there is none.
func TestLeadersAreSpread(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Config)
		count  map[int32]int
		code   int16
	}{
		"spread":  {twoNodes, map[int32]int{3: 2, 5: 2}, 0},
		"serving": {func(cfg *Config) { twoNodes(cfg); cfg.Spread, cfg.Leader = false, func() int32 { return 5 } }, map[int32]int{5: 4}, 0},
		"hidden":  {func(cfg *Config) { twoNodes(cfg); cfg.Spread, cfg.Leader = false, func() int32 { return 9 } }, map[int32]int{3: 4}, 0},
		"nobody":  {func(cfg *Config) { twoNodes(cfg); cfg.Leader = func() int32 { return -1 } }, map[int32]int{-1: 4}, kerr.LeaderNotAvailable.Code},
	} {
		n := newFake()
		n.nodes = tenures("3-a", "5-b")
		addr, _ := start(t, n, c.change)
		p := dial(t, addr)
		p.createTopic("t", 4)
		name := "t"
		meta := kmsg.NewPtrMetadataRequest()
		meta.Version, meta.Topics = 9, []kmsg.MetadataRequestTopic{{Topic: &name}}
		count := map[int32]int{}
		for _, part := range ask[*kmsg.MetadataResponse](p, meta).Topics[0].Partitions {
			count[part.Leader]++
			if part.ErrorCode != c.code || len(part.Replicas) != 2 {
				t.Errorf("%s: %+v", what, part)
			}
		}
		if fmt.Sprint(count) != fmt.Sprint(c.count) {
			t.Errorf("%s: %v, want %v", what, count, c.count)
		}
	}
}
