package admin

import "net/http"

// Short names for the table.
const (
	onGet    = http.MethodGet
	onPut    = http.MethodPut
	onPost   = http.MethodPost
	onDelete = http.MethodDelete
)

// resources is the table of routes below /api. The first row that fits a path
// counts. {vhost} is checked to be a tenant that the user may use, {tenant} is
// not.
var resources = joined(
	clusterResources, accessResources, topologyResources, trafficResources, checkResources,
)

func joined(parts ...[]resource) (all []resource) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

var clusterResources = []resource{
	{"overview", anyUser, methods{onGet: getOverview}},
	{"cluster-name", anyUser, methods{onGet: getClusterName, onPut: unsupported("other names of the cluster")}},
	{"nodes", forMonitor, methods{onGet: listNodes}},
	{"nodes/{node}", forMonitor, methods{onGet: getNode}},
	{"whoami", anyUser, methods{onGet: getWhoami}},
	{"extensions", anyUser, methods{onGet: noRows}},
	{"definitions", administrator, methods{onGet: exportDefinitions, onPost: importDefinitions, onPut: importDefinitions}},
	{"definitions/{vhost}", administrator, methods{onGet: exportVHost, onPost: importVHost, onPut: importVHost}},
	{"parameters", forPolicy, methods{onGet: noRows}},
	{"parameters/{component}", forPolicy, methods{onGet: noRows}},
	{"parameters/{component}/{vhost}", forPolicy, methods{onGet: noRows}},
	{"parameters/{component}/{vhost}/{name}", forPolicy, methods{onGet: nothing, onPut: unsupported("parameters"), onDelete: nothing}},
	{"global-parameters", forPolicy, methods{onGet: listGlobalParameters}},
	{"global-parameters/{name}", forPolicy, methods{onGet: nothing, onPut: unsupported("global parameters"), onDelete: nothing}},
	{"vhost-limits", anyUser, methods{onGet: noRows}},
	{"vhost-limits/{vhost}", anyUser, methods{onGet: noRows}},
	{"vhost-limits/{vhost}/{name}", administrator, methods{onPut: unsupported("limits of virtual hosts"), onDelete: nothing}},
	{"user-limits", anyUser, methods{onGet: noRows}},
	{"user-limits/{user}", anyUser, methods{onGet: noRows}},
	{"user-limits/{user}/{name}", administrator, methods{onPut: unsupported("limits of users"), onDelete: nothing}},
	{"feature-flags", anyUser, methods{onGet: noRows}},
}

var accessResources = []resource{
	{"vhosts", anyUser, methods{onGet: listVHosts}},
	{"vhosts/{tenant}", administrator, methods{onPut: putVHost, onGet: getVHost, onDelete: deleteVHost}},
	{"vhosts/{tenant}/permissions", administrator, methods{onGet: vhostPermissions}},
	{"vhosts/{tenant}/topic-permissions", administrator, methods{onGet: vhostTopicPermissions}},
	{"vhosts/{vhost}/connections", anyUser, methods{onGet: listConnections(connectionInVHost)}},
	{"vhosts/{vhost}/channels", anyUser, methods{onGet: listChannels(connectionInVHost)}},
	{"users", administrator, methods{onGet: listUsers}},
	{"users/without-permissions", administrator, methods{onGet: usersWithout}},
	{"users/bulk-delete", administrator, methods{onPost: deleteUsers}},
	{"users/{user}", administrator, methods{onGet: getUser, onPut: putUser, onDelete: deleteUser}},
	{"users/{user}/permissions", administrator, methods{onGet: listPermissions(permissionOf)}},
	{"users/{user}/topic-permissions", administrator, methods{onGet: listTopicPermissions(topicPermissionOf)}},
	{"permissions", administrator, methods{onGet: listPermissions(everyPermission)}},
	{"permissions/{tenant}/{user}", administrator, methods{onGet: getPermission, onPut: putPermission, onDelete: deletePermission}},
	{"topic-permissions", administrator, methods{onGet: listTopicPermissions(everyTopicPermission)}},
	{"topic-permissions/{tenant}/{user}", administrator, methods{
		onGet: getTopicPermissions, onPut: putTopicPermission, onDelete: deleteTopicPermissions,
	}},
	{"topic-permissions/{tenant}/{user}/{exchange}", administrator, methods{onDelete: deleteTopicPermissions}},
}

var topologyResources = []resource{
	{"exchanges", anyUser, methods{onGet: listExchanges}},
	{"exchanges/{vhost}", anyUser, methods{onGet: listVHostExchanges}},
	{"exchanges/{vhost}/{name}", anyUser, methods{onGet: getExchange, onPut: putExchange, onDelete: deleteExchange}},
	{"exchanges/{vhost}/{name}/publish", anyUser, methods{onPost: publish}},
	{"exchanges/{vhost}/{name}/bindings/source", anyUser, methods{onGet: listSource}},
	{"exchanges/{vhost}/{name}/bindings/destination", anyUser, methods{onGet: listDestination}},
	{"queues", anyUser, methods{onGet: listQueues}},
	{"queues/{vhost}", anyUser, methods{onGet: listVHostQueues}},
	{"queues/{vhost}/{name}", anyUser, methods{onGet: getQueue, onPut: putQueue, onDelete: deleteQueue}},
	{"queues/{vhost}/{name}/contents", anyUser, methods{onDelete: purgeQueue}},
	{"queues/{vhost}/{name}/get", anyUser, methods{onPost: getMessages}},
	{"queues/{vhost}/{name}/bindings", anyUser, methods{onGet: listQueueBindings}},
	{"bindings", anyUser, methods{onGet: listBindings}},
	{"bindings/{vhost}", anyUser, methods{onGet: listVHostBindings}},
	{"bindings/{vhost}/e/{source}/q/{queue}", anyUser, methods{onGet: listBetween(false), onPost: postBinding(false)}},
	{"bindings/{vhost}/e/{source}/q/{queue}/{key}", anyUser, methods{onGet: getBinding(false), onDelete: deleteBinding(false)}},
	{"bindings/{vhost}/e/{source}/e/{exchange}", anyUser, methods{onGet: listBetween(true), onPost: postBinding(true)}},
	{"bindings/{vhost}/e/{source}/e/{exchange}/{key}", anyUser, methods{onGet: getBinding(true), onDelete: deleteBinding(true)}},
	{"policies", anyUser, methods{onGet: listPolicies(false)}},
	{"policies/{vhost}", anyUser, methods{onGet: listPolicies(false)}},
	{"policies/{vhost}/{name}", forPolicy, methods{onGet: getPolicy(false), onPut: putPolicy(false), onDelete: deletePolicy(false)}},
	{"operator-policies", forPolicy, methods{onGet: listPolicies(true)}},
	{"operator-policies/{vhost}", forPolicy, methods{onGet: listPolicies(true)}},
	{"operator-policies/{vhost}/{name}", administrator, methods{onGet: getPolicy(true), onPut: putPolicy(true), onDelete: deletePolicy(true)}},
	{"topics", anyUser, methods{onGet: listTopics}},
	{"topics/{vhost}", anyUser, methods{onGet: listVHostTopics}},
	{"topics/{vhost}/{name}", anyUser, methods{onGet: getTopic, onPut: putTopic, onDelete: deleteTopic}},
	{"groups", anyUser, methods{onGet: listGroups}},
	{"groups/{vhost}", anyUser, methods{onGet: listVHostGroups}},
	{"groups/{vhost}/{name}", anyUser, methods{onGet: getGroup}},
	{"groups/{vhost}/{name}/rewind", anyUser, methods{onPost: rewindGroup}},
}

var trafficResources = []resource{
	{"connections", anyUser, methods{onGet: listConnections(everyConnection)}},
	{"connections/username/{user}", anyUser, methods{onGet: listConnections(connectionOfUser), onDelete: deleteUserConnections}},
	{"connections/{name}", anyUser, methods{onGet: getConnection, onDelete: deleteConnection}},
	{"connections/{name}/channels", anyUser, methods{onGet: channelsOfConnection}},
	{"channels", anyUser, methods{onGet: listChannels(everyConnection)}},
	{"channels/{name}", anyUser, methods{onGet: getChannel}},
	{"consumers", anyUser, methods{onGet: listConsumers}},
	{"consumers/{vhost}", anyUser, methods{onGet: listConsumers}},
}

var checkResources = []resource{
	{"aliveness-test/{vhost}", anyUser, methods{onGet: checkAliveness}},
	{"healthchecks/node", forMonitor, methods{onGet: checkServing}},
	{"health/checks/alarms", forMonitor, methods{onGet: checkAlarms}},
	{"health/checks/local-alarms", forMonitor, methods{onGet: checkLocalAlarms}},
	{"health/checks/virtual-hosts", forMonitor, methods{onGet: checkServing}},
	{"health/checks/port-listener/{port}", forMonitor, methods{onGet: checkPort}},
	{"health/checks/protocol-listener/{protocol}", forMonitor, methods{onGet: checkProtocol}},
	{"health/checks/node-is-quorum-critical", forMonitor, methods{onGet: checkCritical}},
	{"health/checks/node-is-mirror-sync-critical", forMonitor, methods{onGet: checkCritical}},
}
