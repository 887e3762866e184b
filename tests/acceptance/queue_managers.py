"""Which tests run on which queue manager.

Every test that uses a bridge runs on the embedded queue manager and on one elsewhere, through ibmmq. Exceptions are here.
"""

from __future__ import annotations

from typing import Any

import pytest

EMBEDDED, IBMMQ, PYMQI = "embedded", "ibmmq", "pymqi"

#: Tests of what only the embedded queue manager has, and why.
EMBEDDED_ONLY: dict[str, str] = {
    "test_no_matching_subscribers": "IBM MQ is not asked for (MQPMO_WARN_IF_NO_SUBS_MATCHED)",
    "test_one_message_for_several_filters": "IBM MQ puts a message for each",
    "test_a_connect_that_breaks_a_rule": "what a channel refuses has not come to a queue manager",
    "test_many_user_properties_do_not_hold_up_others": "what a channel refuses has not come to a queue manager",
    "test_retain_as_published": "IBM MQ does not tell a subscriber whether a publication that comes live was put as retained",
    "test_a_subscription_of_a_clean_session_is_replaced_without_a_gap": "a non-durable subscription of IBM MQ is made "
    "anew: what is published between its MQCLOSE and the next MQSUB passes by",
    **dict.fromkeys(
        ("test_a_violation", "test_a_connect_that_is_refused", "test_what_is_no_connect_is_not_answered"),
        "what a connection's bytes are worth is judged before any queue manager is asked",
    ),
    "test_what_a_newcomer_sees": "a newcomer has the embedded queue manager: its lines name the data directory",
    **dict.fromkeys(
        (
            "test_a_disk_that_was_filled_is_used_again",
            "test_a_full_disk_is_drained",
            "test_dup_is_set_after_a_failed_commit_and_a_restart",
            "test_a_bridge_starts_on_a_full_disk",
            "test_a_start_that_fails_leaves_the_reserve",
            "test_other_processes_open_the_database_while_commits_fail",
            "test_what_was_said_stays_true",
            "test_what_was_said_stays_true_in_many_runs",
        ),
        "IBM MQ's disk is not ours",
    ),
    "test_port_in_use": "what fails is the listening, which comes behind the start of either queue manager",
    "test_second_bridge_on_the_same_data_directory": "type ibm has no data directory; test_lost_queue_manager.py has two "
    "bridges on one queue manager",
    "test_from_own_clients_to_a_broker": "IBM MQ says of no publication that comes live that it is retained (as-published)",
    "test_the_audit_is_the_judge": "the audit sees records of clients and of the archive, which know of no queue manager",
    "test_a_client_that_publishes_without_reading_its_acknowledgements": "a channel stops reading, whatever is behind it; "
    "what fills the system's buffers before are some 100,000 publications",
    **dict.fromkeys(
        (
            "test_publish_and_subscribe",
            "test_a_session_that_goes_on",
            "test_a_will",
            "test_topic_aliases_both_ways",
            "test_members_of_a_share",
        ),
        "MQTT.js: another client of the same channels, which others drive on both",
    ),
    "test_applications_find_the_queue_manager": "applications find IBM MQ by the configuration alone, see tests/unit/cli",
    "test_a_message_among_the_records_of_sessions_ends_no_start": "on IBM MQ it does, for MQXR has a queue of that name too",
    **dict.fromkeys(
        (
            "test_the_header_of_an_example_says_what_happens",
            "test_alarms_come_first_and_expire",
            "test_readings_that_go_nowhere",
            "test_commands_of_every_persistence",
            "test_a_publication_without_response_topic_is_no_request",
            "test_a_client_of_the_bridge_is_answered",
            "test_what_is_no_json_or_no_text",
            "test_from_own_clients_to_mq",
            "test_from_a_broker_of_3_1_1",
            "test_what_was_there_before_the_mapping_comes_first",
            "test_what_never_keeps_it_does_not_clear",
            "test_from_a_broker_to_a_queue",
            "test_from_a_queue_to_a_broker",
            "test_places_to_put_to",
            "test_what_cannot_go_to_mq",
            "test_from_mq_to_own_clients",
            "test_what_cannot_go_to_mqtt",
        ),
        "other tests of mappings run elsewhere, and the contract suite of the adapter covers what these need",
    ),
}

#: Tests of what only a queue manager elsewhere has, and why.
ELSEWHERE_ONLY: dict[str, str] = {
    "test_the_line_to_try_next_names_the_configuration_file": "the embedded queue manager's names the data directory",
    "test_what_check_says_of_the_bridge": "the bridge of the embedded queue manager is asked for no authority",
}

#: A small part of the suite, which runs on pymqi as well: both packages are wrapped by one adapter (bridge/mq/ibm),
#: whose own contract suite runs on both.
ON_PYMQI = frozenset(
    (
        "test_a_client_without_authority_is_not_let_in",
        "test_durable_session_over_a_restart",
        "test_kill_while_both_are_at_work",
        "test_display_sub_lists_client_identifier_and_topic",
        "test_publications_that_are_refused",
        "test_qos_of_a_publication",
        "test_retain",
        "test_subscription_refused_by_a_topic_object",
        "test_subscriptions",
        "test_tables_1_to_3_at_a_subscriber",
        "test_topic_object_decides_on_a_publication",
        "test_unknown_client_goes_to_the_dead_letter_queue",
        "test_will_of_every_qos",
    )
)


#: Tests under load whose run on a queue manager elsewhere is for `make test-slow`: others of their kind run on both.
SLOW_ELSEWHERE = frozenset(
    (
        "test_guarantees_under_load",
        "test_a_session_that_ends_leaves_no_request_behind",
        "test_sigterm_with_a_client_that_never_reads",
        "test_the_oldest_requests_make_room",
        "test_thousand_idle_clients",
        "test_reload",
    )
)


def queue_managers_of(test: str) -> list[Any]:
    """The queue managers that a test function runs on."""
    if test in EMBEDDED_ONLY:
        return [EMBEDDED]
    here = [] if test in ELSEWHERE_ONLY else [EMBEDDED]
    elsewhere = pytest.param(IBMMQ, marks=pytest.mark.slow) if test in SLOW_ELSEWHERE else IBMMQ
    return [*here, elsewhere, *([PYMQI] if test in ON_PYMQI else [])]
