/* StrucId, versions and lengths of the MQI's structures.

   A program passes a structure of the version for which it was written. The library must not read or write memory after the end of
   that version, because the memory may belong to something else. */
#include <string.h>

#include "standin.h"

#define BEFORE(structure, field) offsetof(structure, field)
#define WHOLE(structure) sizeof(structure)

const struct form FORM_OD = {
    "OD  ",
    MQRC_OD_ERROR,
    {BEFORE(MQOD, RecsPresent), BEFORE(MQOD, AlternateSecurityId), BEFORE(MQOD, ObjectString), WHOLE(MQOD)}};
const struct form FORM_MD = {"MD  ", MQRC_MD_ERROR, {BEFORE(MQMD, GroupId), WHOLE(MQMD)}};
const struct form FORM_PMO = {
    "PMO ", MQRC_PMO_ERROR, {BEFORE(MQPMO, RecsPresent), BEFORE(MQPMO, OriginalMsgHandle), WHOLE(MQPMO)}};
const struct form FORM_GMO = {
    "GMO ",
    MQRC_GMO_ERROR,
    {BEFORE(MQGMO, MatchOptions), BEFORE(MQGMO, MsgToken), BEFORE(MQGMO, Reserved2), WHOLE(MQGMO)}};
const struct form FORM_SD = {"SD  ", MQRC_SD_ERROR, {WHOLE(MQSD)}};
const struct form FORM_SRO = {"SRO ", MQRC_SRO_ERROR, {WHOLE(MQSRO)}};
const struct form FORM_STS = {"STAT", MQRC_STS_ERROR, {BEFORE(MQSTS, ObjectString), WHOLE(MQSTS)}};
const struct form FORM_CNO = {"CNO ",
                              MQRC_CNO_ERROR,
                              {BEFORE(MQCNO, ClientConnOffset), BEFORE(MQCNO, ConnTag), BEFORE(MQCNO, SSLConfigPtr),
                               BEFORE(MQCNO, ConnectionId), BEFORE(MQCNO, CCDTUrlPtr), BEFORE(MQCNO, ApplName),
                               BEFORE(MQCNO, BalanceParmsPtr), WHOLE(MQCNO)}};
const struct form FORM_CSP = {
    "CSP ", MQRC_CSP_ERROR, {BEFORE(MQCSP, Reserved3), BEFORE(MQCSP, Reserved4), WHOLE(MQCSP)}};
const struct form FORM_SCO = {"SCO ",
                              MQRC_SCO_ERROR,
                              {BEFORE(MQSCO, KeyResetCount), BEFORE(MQSCO, EncryptionPolicySuiteB),
                               BEFORE(MQSCO, CertificateValPolicy), BEFORE(MQSCO, CertificateLabel),
                               BEFORE(MQSCO, KeyRepoPasswordPtr), BEFORE(MQSCO, HTTPSCertValidation), WHOLE(MQSCO)}};
const struct form FORM_BO = {"BO  ", MQRC_BO_ERROR, {WHOLE(MQBO)}};
const struct form FORM_CMHO = {"CMHO", MQRC_CMHO_ERROR, {WHOLE(MQCMHO)}};
const struct form FORM_DMHO = {"DMHO", MQRC_DMHO_ERROR, {WHOLE(MQDMHO)}};
const struct form FORM_SMPO = {"SMPO", MQRC_SMPO_ERROR, {WHOLE(MQSMPO)}};
const struct form FORM_IMPO = {"IMPO", MQRC_IMPO_ERROR, {WHOLE(MQIMPO)}};
const struct form FORM_DMPO = {"DMPO", MQRC_DMPO_ERROR, {WHOLE(MQDMPO)}};
const struct form FORM_PD = {"PD  ", MQRC_PD_ERROR, {WHOLE(MQPD)}};
const struct form FORM_CBD = {"CBD ", MQRC_CBD_ERROR, {WHOLE(MQCBD)}};
const struct form FORM_CTLO = {"CTLO", MQRC_CTLO_ERROR, {WHOLE(MQCTLO)}};
const struct form FORM_BMHO = {"BMHO", MQRC_BMHO_ERROR, {WHOLE(MQBMHO)}};
const struct form FORM_MHBO = {"MHBO", MQRC_MHBO_ERROR, {WHOLE(MQMHBO)}};

size_t form_length(const struct form *form, const void *structure, MQLONG *reason)
{
    const MQBO *start = structure; /* all begin with StrucId and Version */
    *reason = form->reason;
    if (!start || memcmp(start->StrucId, form->struc_id, sizeof start->StrucId)) return 0;
    if (start->Version < 1 || start->Version > 8) return 0;
    return form->lengths[start->Version - 1]; /* 0 for a version that does not exist */
}

/* "MQCHARV - Variable Length String": lengths are positive, or -1 for a string that ends with a NUL. */
bool string_is_valid(const MQCHARV *string)
{
    return string->VSLength >= MQVS_NULL_TERMINATED && string->VSBufSize >= MQVS_NULL_TERMINATED;
}
